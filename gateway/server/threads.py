"""The gthread worker."""

from gunicorn.workers.gthread import ThreadWorker as GunicornThreadWorker

from gateway.server.requests import RefusingWorker


class ThreadWorker(RefusingWorker, GunicornThreadWorker):
    """Closes its sockets when it stops, and has the application end what waits.

    gunicorn leaves them open until the last request is done: whoever connects meanwhile would wait
    and then be cut off, instead of being refused at once and going elsewhere.
    """

    def set_accept_enabled(self, enabled: bool | None) -> None:
        super().set_accept_enabled(enabled)
        if not enabled and not self.alive:
            for listener in self.sockets:
                listener.close()
            self.begin_stop()
