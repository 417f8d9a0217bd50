"""Spans, where OpenTelemetry's variables ask for them; and nothing of it where they don't."""

from __future__ import annotations

import subprocess
import sys

import pytest
from flask.testing import FlaskClient
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, format_trace_id

from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.meters import NO_METERS
from gateway.observability import is_wanted, tracing
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.tracing import SpanRecorder, exporting_provider
from tests.memory_store import MemoryStore
from tests.patience import WAIT_S

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
PATH = "/v1/catalogs/c/documents/k"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def client(exporter: InMemorySpanExporter) -> FlaskClient:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces = SpanRecorder(provider)
    gateway = GatewayService(
        MemoryStore(), ThreadRuntime(), ServiceLimits(), meters=traces.metered(NO_METERS)
    )
    return create_app(gateway, observers=[traces]).test_client()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_write_is_a_span_with_its_steps(
    client: FlaskClient, exporter: InMemorySpanExporter
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "mine"}
    answer = client.put(PATH, json={"its": "contents"}, headers=headers)
    spans = by_name(exporter)
    steps = ["queue wait", "decide", "move head"]
    whole = spans.pop("PUT /v1/catalogs/{catalog}/documents/{key}")
    assert list(spans) == steps
    assert format_trace_id(whole.context.trace_id) == TRACE
    assert whole.parent is not None
    assert whole.parent.span_id == int(PARENT, 16)
    assert whole.attributes == {
        "http.request.method": "PUT",
        "http.route": "/v1/catalogs/{catalog}/documents/{key}",
        "http.response.status_code": 201,
        "gateway.request_id": "mine",
        "gateway.principal": "anonymous",
        "gateway.commit_id": answer.headers["Commit-Id"],
        "gateway.catalog": "c",
    }
    for step in spans.values():
        assert step.context.trace_id == whole.context.trace_id
        assert step.parent is not None
        assert step.parent.span_id == whole.context.span_id
        assert step.attributes == {"gateway.outcome": "applied", "gateway.attempts": 1}
    # One after the other, each within the request (the two clocks may differ by a little).
    times = [(spans[name].start_time or 0, spans[name].end_time or 0) for name in steps]
    assert times == sorted(times)
    slack_ns = 50_000_000
    assert times[0][0] >= (whole.start_time or 0) - slack_ns
    assert times[-1][1] <= (whole.end_time or 0) + slack_ns


def test_a_request_that_was_not_traced_begins_a_trace(
    client: FlaskClient, exporter: InMemorySpanExporter
) -> None:
    assert client.get(PATH, headers={"traceparent": "malformed"}).status_code == 404
    assert client.get("/nowhere").status_code == 404
    document, nowhere = exporter.get_finished_spans()
    assert document.parent is None
    assert document.attributes is not None
    assert document.attributes["error.type"] == "document_not_found"
    assert document.status.status_code is StatusCode.UNSET
    assert nowhere.name == "GET"
    assert document.context.trace_id != nowhere.context.trace_id


def test_a_refused_write_has_no_span_of_a_later_step(
    client: FlaskClient, exporter: InMemorySpanExporter
) -> None:
    client.put(PATH, json={}, headers={"If-Match": '"1-00000000"'})
    assert {"queue wait", "decide"} <= by_name(exporter).keys()
    assert "move head" not in by_name(exporter)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", **ENDPOINT}, False),
        ({"OTEL_SDK_DISABLED": "true", **ENDPOINT}, False),
        ({"OTEL_SERVICE_NAME": "gateway"}, False),
    ],
)
def test_the_standard_variables_turn_tracing_on(environment: dict[str, str], wanted: bool) -> None:
    assert is_wanted(environment) is wanted


def test_the_standard_variables_set_the_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    named = exporting_provider("1.2.3").resource.attributes
    assert named["service.name"] == "metadata-gateway"
    assert named["service.version"] == "1.2.3"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    assert exporting_provider("1.2.3").resource.attributes["service.name"] == "mine"
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    with pytest.raises(ValueError, match="carrier-pigeon"):
        exporting_provider("1.2.3")
    assert tracing("1.2.3") is None  # it is logged, and the service runs all the same


def test_without_tracing_opentelemetry_is_not_imported() -> None:
    program = (
        "import sys, gateway.assembly, gateway.observability\n"
        "assert gateway.observability.observability(access_log=False)\n"
        "found = [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT_S, env={"PATH": ""})
