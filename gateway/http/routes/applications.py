"""`/v1/catalogs/{catalog}/applications`: jobs whose rows are applied once, whoever runs them."""

from __future__ import annotations

from typing import Any, Final

from gateway.access import Role
from gateway.decide.applications import Application, applications, fence_of
from gateway.decide.request import ApplicationStep
from gateway.http.context import Context, DecidedWrite
from gateway.http.door.admission import take_members
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire.body import refuse_member
from gateway.http.wire.conditions import refuse_terms
from gateway.http.wire.headers import application_name
from gateway.http.wire.responses import Answer, body_answer, empty_answer, encode
from gateway.http.write.answer import Result, result_of
from gateway.http.write.begins import APPLICATION_REQUEST, record_after, step_of, step_request
from gateway.model import APPLICATIONS_KEY
from patching.values import rfc3339

_ONE: Final = f"{CATALOG}/applications/<segment:application>"


class ApplicationRoutes(Routes):
    @route("GET", f"{CATALOG}/applications", "list_applications", Role.READ)
    def list(self, context: Context, catalog: str) -> Answer:
        """The records of all applications, by name."""
        refuse_terms(context.environ)
        self._gateway.listing.head(catalog)
        reading = self._gateway.read(catalog, APPLICATIONS_KEY)
        known = sorted(applications(reading.document).items())
        content = {"applications": [_shape(name, record) for name, record in known]}
        return body_answer(encode(content), [("Catalog-Revision", str(reading.catalog_revision))])

    @route("PUT", _ONE, "put_application", Role.WRITE)
    def put(self, context: Context, catalog: str, application: str) -> Answer:
        """Begin a version, finish it or end one run of it, or set the principals that share the
        application."""
        refuse_terms(context.environ)
        name = application_name(application)
        members = take_members(context, self._limits, APPLICATION_REQUEST)
        if members["version"] is None and members["principals"] is None:
            refuse_member("", "it needs a version, principals, or both")
        if members["version"] is None and members["finished"]:
            refuse_member("/finished", "it needs a version")
        if members["ended"] and None in (members["version"], members["run"]):
            refuse_member("/ended", "it needs a version and a run")
        if members["ended"] and members["finished"]:
            refuse_member("/ended", "the version can't be finished by the same request")
        result = self._take(context, step_of(catalog, name, members))
        record = record_after(result, name)
        content = {**_shape(name, record), "fence": fence_of(name, record, members["run"])}
        return body_answer(encode(content), [("Catalog-Revision", str(result.catalog_revision))])

    @route("DELETE", _ONE, "delete_application", Role.WRITE)
    def delete(self, context: Context, catalog: str, application: str) -> Answer:
        """Forget the application: nothing is applied under its fences any more."""
        refuse_terms(context.environ)
        step = ApplicationStep(catalog, application_name(application))
        result = self._take(context, step)
        return empty_answer([("Catalog-Revision", str(result.catalog_revision))])

    def _take(self, context: Context, step: ApplicationStep) -> Result:
        """Take the step. Raises the CommitError of one that was refused or is unknown."""
        request = step_request(self._gateway, context.by, step)
        written = self._gateway.commit(request)
        context.observed.decided_write = DecidedWrite(context.by.name, False, written)
        return result_of(written, APPLICATIONS_KEY, dry_run=False)


def _shape(name: str, record: Application) -> dict[str, Any]:
    return {
        "application": name,
        "version": record.version,
        "begun": None if record.version is None else rfc3339(record.begun_us),
        "finished": record.finished,
        "principals": record.principals,
        "keys": record.keys,
        "open": record.open,
        "ended": record.ended,
    }
