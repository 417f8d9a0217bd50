"""`POST /v1/catalogs/{catalog}/transactions`: compare, then or else; one commit or none."""

from __future__ import annotations

from gateway.decide.edits import operations_in
from gateway.errors import AttributesInvalid, DocumentNotFound, PatchDoesNotFit, TargetExists
from gateway.http.context import Context
from gateway.http.door.admission import take_body
from gateway.http.door.rate_limits import spend_operations
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire import headers as media_types
from gateway.http.wire.conditions import refuse_all_but_several
from gateway.http.wire.headers import catalog_name
from gateway.http.wire.responses import Answer
from gateway.http.write.answer import commit
from gateway.http.write.ask import Sent, read_ask, request_of, with_members
from gateway.http.write.transaction_answers import transaction_answer
from gateway.http.write.transactions import read_transaction

# The errors that only an action raises.
_ACTION_ERRORS = (DocumentNotFound, PatchDoesNotFit, TargetExists, AttributesInvalid)


class TransactionRoutes(Routes):
    @route("POST", f"{CATALOG}/transactions", "transaction")
    def commit(self, context: Context, catalog: str) -> Answer:
        """All of ``then``, or all of ``else``, as one commit at one revision; or nothing."""
        ask = read_ask(context, catalog_name(catalog, self._limits))
        refuse_all_but_several(ask.conditions)
        media_types.require_json(context.environ)
        raw = take_body(context, self._limits)
        transaction = read_transaction(raw, self._limits, self._gateway.limits.patch, ask.by.name)
        edits = (*transaction.then, *(transaction.otherwise or ()))
        spend_operations(context, sum(operations_in(each.edit) for each in edits))
        ask = with_members(
            ask, context.environ, transaction.message, transaction.author, transaction.dry_run
        )
        request = request_of(
            self._gateway,
            ask,
            transaction.then,
            Sent(transaction.body, media_types.JSON, len(raw)),
            compare=transaction.compare,
            otherwise=transaction.otherwise,
        )
        try:
            result = commit(self._gateway, context, ask, request)
        except _ACTION_ERRORS as error:
            if error.action is None:
                error.action = 0  # a single one isn't counted
            raise
        return transaction_answer(self._gateway, ask, transaction, result)
