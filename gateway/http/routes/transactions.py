"""`POST /v1/catalogs/{catalog}/transactions`: compare, then or else; one commit or none."""

from __future__ import annotations

import hashlib

import msgspec
from flask import Flask

from gateway.decide.conditions import Conditions, written
from gateway.decide.request import Refused, Request, Unknown, Written
from gateway.errors import (
    AttributesInvalid,
    CommitError,
    DocumentNotFound,
    OutcomeUnknown,
    PatchDoesNotFit,
    TargetExists,
)
from gateway.http.context import Context, Decided, this_request
from gateway.http.door.admission import take_body
from gateway.http.door.authorization import author_of
from gateway.http.door.rate_limits import operations_in, spend_operations
from gateway.http.wire import headers as media_types
from gateway.http.wire import query as names
from gateway.http.wire.answers import Answer
from gateway.http.wire.conditions import refuse_all_but_several, write_conditions
from gateway.http.wire.headers import commit_author, commit_message, idempotency_key, preferences
from gateway.http.wire.problems import problem_answer
from gateway.http.wire.query import WriteParameters, parameters
from gateway.http.wire.refusals import RequestRefused
from gateway.http.write.explain import what_helps
from gateway.http.write.transaction_answers import Asked, transaction_answer
from gateway.http.write.transactions import Transaction, read_transaction
from gateway.limits import RequestLimits
from gateway.model import Idempotency
from gateway.service import Gateway

_PARAMETERS = WriteParameters()
_canonical = msgspec.json.Encoder(order="deterministic").encode
# What only an action can fail with.
_ACTION_ERRORS = (DocumentNotFound, PatchDoesNotFit, TargetExists, AttributesInvalid)


class TransactionRoutes:
    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._gateway = gateway
        self._limits = limits

    def register(self, app: Flask) -> None:
        rule = "/v1/catalogs/<segment:catalog>/transactions"
        app.add_url_rule(rule, "transaction", self.commit, methods=["POST"])

    def commit(self, catalog: str) -> Answer:
        """All of ``then``, or all of ``else``, as one commit at one revision; or nothing."""
        context = this_request()
        catalog = names.catalog_name(catalog, self._limits)
        asked, request = self._read(context, catalog)
        try:
            done = _committed(self._gateway, context, request)
        except CommitError as error:
            if isinstance(error, _ACTION_ERRORS) and error.action is None:
                error.action = 0  # a single one isn't counted
            key = request.idempotency.key if request.idempotency else None
            context.helps = what_helps(self._gateway, request.by, catalog, error, key)
            return problem_answer(error, context)
        return transaction_answer(self._gateway, asked, done)

    def _read(self, context: Context, catalog: str) -> tuple[Asked, Request]:
        by, environ = context.by, context.environ
        query = parameters(environ, _PARAMETERS)
        conditions = write_conditions(environ)
        refuse_all_but_several(conditions)
        prefer = preferences(environ)
        key = idempotency_key(environ)
        header_message = commit_message(environ)
        named = commit_author(environ)
        media_types.require_json(environ)
        raw = take_body(context, self._limits)
        transaction = read_transaction(raw, self._limits, self._gateway.limits.patch)
        edits = (*transaction.then, *(transaction.otherwise or ()))
        spend_operations(context, sum(operations_in(each.edit) for each in edits))
        message = _message(header_message, transaction)
        author = author_of(_author(named, transaction), by, catalog)
        idempotency = None
        if key is not None:
            version = query["resource_version"]
            other = author if author != by.name else None
            fingerprint = _fingerprint(catalog, conditions, version, message, other, transaction)
            idempotency = Idempotency(by.name, key, fingerprint)
        asked = Asked(by, catalog, transaction, prefer, query["dry_run"] or transaction.dry_run)
        return asked, self._gateway.request(
            catalog,
            transaction.then,
            wait_s=prefer.wait_s,
            otherwise=transaction.otherwise,
            compare=transaction.compare,
            conditions=conditions,
            resource_version=query["resource_version"],
            size_bytes=len(raw),
            by=by,
            author=author,
            message=message,
            idempotency=idempotency,
            dry_run=asked.dry_run,
        )


def _committed(gateway: Gateway, context: Context, request: Request) -> Written:
    """Raises the CommitError of a transaction that was not applied."""
    done = gateway.commit(request)
    context.decided = Decided(request.author, request.dry_run, done)
    if isinstance(done.outcome, Unknown):
        raise OutcomeUnknown(done.outcome.commit_id)
    if isinstance(done.outcome, Refused):
        raise done.outcome.error
    return done


def _message(header: str | None, transaction: Transaction) -> str | None:
    if header is not None and transaction.message is not None and header != transaction.message:
        detail = "Commit-Message: the body has another 'message'"
        raise RequestRefused("invalid_header", detail, header="Commit-Message")
    return transaction.message or header


def _author(header: str | None, transaction: Transaction) -> str | None:
    if header is not None and transaction.author is not None and header != transaction.author:
        detail = "Commit-Author: the body has another 'author'"
        raise RequestRefused("invalid_header", detail, header="Commit-Author")
    return transaction.author or header


def _fingerprint(
    catalog: str,
    conditions: Conditions,
    resource_version: int | None,
    message: str | None,
    author: str | None,
    transaction: Transaction,
) -> str:
    """A digest of what was asked, as that of a single write (``gateway.http.write.ask``).

    ``author`` where the commit names another than who asks.
    """
    tags = sorted(map(written, conditions.if_match or ()))
    asked = ["transaction", catalog, tags, resource_version, message, transaction.body]
    if author is not None:
        asked.append({"author": author})
    return hashlib.sha256(_canonical(asked)).hexdigest()
