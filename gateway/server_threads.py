"""The gthread worker: gunicorn's own, answering unparsable requests as the service does."""

from gunicorn.workers.gthread import ThreadWorker as GunicornThreadWorker

from gateway.server_requests import RefusingWorker


class ThreadWorker(RefusingWorker, GunicornThreadWorker):
    pass
