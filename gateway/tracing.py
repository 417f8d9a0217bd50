"""Spans: one for each request, and, for a single write, one for each of its steps.

A batch serves many requests, so its leader belongs to no trace. The spans of the steps are made
afterwards, in the thread of the request, from the times of the last round of its write; the leader
does nothing for them. The lines of a bulk request get no such spans: there would be thousands.

This module is imported only if traces are asked for: it needs the extra ``otel``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, cast

from opentelemetry import context, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
)
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.http.context import NO_ROUTE, Observed
from gateway.meters import Meters, WriteEnded

_SERVICE = "metadata-gateway"
_propagator = TraceContextTextMapPropagator()


def exporting_provider(version: str) -> TracerProvider:
    """A provider for OTEL_TRACES_EXPORTER: ``otlp`` (over HTTP; the default) or ``console``.

    The SDK itself reads endpoint, sampler, resource and batches from OTEL_*.
    Raises ValueError for another exporter.
    """
    attributes = {"service.version": version}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes["service.name"] = _SERVICE
    # OTEL_RESOURCE_ATTRIBUTES overrides these.
    resource = Resource(attributes).merge(Resource.create())
    if resource.attributes.get("service.name", "").__str__().startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": _SERVICE}))
    provider = TracerProvider(resource=resource)
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if exporter == "console":
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
    elif exporter == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    else:
        raise ValueError(f"OTEL_TRACES_EXPORTER is {exporter!r}; it must be otlp, console or none")
    return provider


class SpanRecorder:
    """Makes the spans of requests and writes: see ``gateway.observability.Tracing``."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("gateway")

    def metered(self, meters: Meters) -> Meters:
        return cast(Meters, _TracedWrites(meters, self._tracer))

    def began(self, request: Observed) -> None:
        environ = request.environ
        carrier = {
            name: value
            for name in ("traceparent", "tracestate")
            if (value := environ.get("HTTP_" + name.upper())) is not None
        }
        parent = _propagator.extract(carrier)
        span = self._tracer.start_span(request.method, parent, kind=SpanKind.SERVER)
        request.trace_id = trace.format_trace_id(span.get_span_context().trace_id)
        request.span = span, context.attach(trace.set_span_in_context(span))

    def ended(self, request: Observed) -> None:
        span, token = request.span
        _describe(span, request)
        span.end()
        context.detach(token)


def _describe(span: Span, request: Observed) -> None:
    if not span.is_recording():
        return
    span.set_attribute("http.request.method", request.method)
    if request.route is not NO_ROUTE:
        span.update_name(f"{request.method} {request.route.template}")
        span.set_attribute("http.route", request.route.template)
    span.set_attribute("http.response.status_code", request.status)
    for name, value in request.log_fields().items():
        if name != "trace_id":
            span.set_attribute(f"gateway.{name}", value)
    if request.problem is not None:
        span.set_attribute("error.type", request.problem)
    if request.status >= 500 or not request.status:
        span.set_status(StatusCode.ERROR)


class _TracedWrites:
    """``meters``, with the spans of each write."""

    def __init__(self, meters: Meters, tracer: trace.Tracer) -> None:
        self._meters = meters
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._meters, name)
        setattr(self, name, method)
        return method

    def writes_ended(self, ended: Sequence[WriteEnded]) -> None:
        self._meters.writes_ended(ended)
        # Threads without a request of their own, like those of bulk requests, have no span.
        if trace.get_current_span().is_recording():
            for each in ended:
                self._trace(each)

    def _trace(self, ended: WriteEnded) -> None:
        if ended.taken is None:
            return
        self._span("queue wait", ended.queued, ended.taken, ended)
        times = ended.times
        if times is None:
            return
        steps = (
            ("decide", times.taken, times.decided),
            ("move head", times.decided, times.moved),
        )
        for name, begun, done in steps:
            if begun and done:
                self._span(name, begun, done, ended)

    def _span(self, name: str, begun: float, done: float, ended: WriteEnded) -> None:
        # The loop's clock is monotonic: its times are converted by the present difference.
        zero_ns = time.time_ns() - round(time.monotonic() * 1e9)
        span = self._tracer.start_span(name, start_time=zero_ns + round(begun * 1e9))
        span.set_attribute("gateway.outcome", ended.outcome)
        span.set_attribute("gateway.attempts", ended.attempts)
        span.end(zero_ns + round(done * 1e9))
