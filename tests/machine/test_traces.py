"""Traces, as a collector receives them from real processes (OTLP over HTTP)."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.machine.conftest import ROOT, within
from tests.machine.test_log import full_disk
from tests.registry.processes import Server, environment
from tests.world import PASSWORD, TestTenant

CALLER = "0af7651916cd43dd8448eb211c80319c"


@dataclass
class Collector:
    """What arrived: spans, with the name of the service that they came from."""

    url: str = ""
    spans: list[tuple[str, Span]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    def trace(self, trace_id: str) -> list[Span]:
        return [span for _, span in list(self.spans) if span.trace_id.hex() == trace_id]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector, which takes `POST /v1/traces` (OTLP/HTTP, binary)."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.raw.append(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                (name,) = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
                collector.spans += [(name, span) for scope in resource.scope_spans for span in scope.spans]
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, collector: Collector) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "server.log"
    started = Server(log, 1, OTEL_EXPORTER_OTLP_ENDPOINT=f"{collector.url}/", OTEL_BSP_SCHEDULE_DELAY="50")
    started.wait()
    yield started
    started.end()


def attributes(span: Span) -> dict[str, Any]:
    return {a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in span.attributes}


def received(collector: Collector, trace_id: str) -> tuple[Span, list[Span]]:
    """Return the span of a request, which ends after all others, and those inside it."""

    def requests() -> list[Span]:
        return [span for span in collector.trace(trace_id) if span.kind == Span.SPAN_KIND_SERVER]

    assert within(10, lambda: requests() != [])
    (request,) = requests()
    return request, [span for span in collector.trace(trace_id) if span is not request]


def traceparent(trace_id: str) -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}


def test_request_continues_the_callers_trace(server: Server, collector: Collector, tenant: TestTenant) -> None:
    trace, person = uuid4().hex, tenant.register()
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": PASSWORD}
    response = server.call("POST", "/uflow/auth/enduser/login", login, headers=traceparent(trace))
    assert response.status_code == 200
    request, inner = received(collector, trace)
    assert request.parent_span_id.hex() == "b7ad6b7169203331"
    assert request.name == "POST uflow/auth/enduser/login"
    found = attributes(request)
    assert found["http.request.method"] == "POST"
    assert found["http.response.status_code"] == 200
    assert found["identity.tenant"] == str(tenant.id)
    assert found["identity.request_id"] == response.headers["X-Request-ID"]
    assert request.status.code == Status.STATUS_CODE_UNSET
    assert {span.name for span in inner} >= {"hash", "WITH"}
    of_tenant = [attributes(span) for span in inner if "identity.tenant" in attributes(span)]
    assert {one["identity.tenant"] for one in of_tenant} == {str(tenant.id)}
    assert {one["identity.server"] for one in of_tenant} == {"main"}
    assert any("INSERT INTO userflow_endusersession" in one["db.query.text"] for one in of_tenant)


def test_log_lines_name_the_trace(server: Server, collector: Collector) -> None:
    trace = uuid4().hex
    server.call("GET", "/uflow/live", headers=traceparent(trace))
    received(collector, trace)
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    assert [line["route"] for line in lines if line.get("trace") == trace] == ["uflow/live"]


def test_request_without_a_trace_begins_one(server: Server, collector: Collector) -> None:
    wanted = uuid4().hex
    server.call("GET", "/uflow/live", headers={"X-Request-ID": wanted, "traceparent": "not-a-trace"})

    def found() -> list[Span]:
        return [span for _, span in collector.spans if attributes(span).get("identity.request_id") == wanted]

    assert within(10, lambda: found() != [])
    assert found()[0].parent_span_id == b""
    assert {name for name, _ in collector.spans} == {"identity-platform"}


def test_trace_that_the_caller_does_not_record_is_not_sent(server: Server, collector: Collector) -> None:
    silent, loud = uuid4().hex, uuid4().hex
    server.call("GET", "/uflow/live", headers={"traceparent": f"00-{silent}-b7ad6b7169203331-00"})
    server.call("GET", "/uflow/live", headers=traceparent(loud))
    received(collector, loud)
    assert collector.trace(silent) == []


def test_failed_statement_is_marked_without_its_text(server: Server, collector: Collector, tenant: TestTenant) -> None:
    trace = uuid4().hex
    with full_disk(tenant):
        path = f"/uflow/user/enduser/list?tenant_id={tenant.id}"
        assert server.call("GET", path, token=tenant.api.token, headers=traceparent(trace)).status_code == 503
    request, inner = received(collector, trace)
    assert (request.status.code, attributes(request)["error.type"]) == (Status.STATUS_CODE_ERROR, "503")
    (failed,) = [span for span in inner if span.status.code == Status.STATUS_CODE_ERROR]
    assert attributes(failed)["error.type"] == "OperationalError"
    assert failed.status.message == ""
    assert not failed.events


def test_spans_hold_nothing_that_was_asked(server: Server, collector: Collector, tenant: TestTenant) -> None:
    trace, person = uuid4().hex, tenant.register()
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": "wrong-word-of-this-test"}
    path = "/uflow/auth/enduser/login?secret=query-of-this-test"
    assert server.call("POST", path, login, headers=traceparent(trace)).status_code == 401
    tenant.api.get(f"/uflow/user/enduser/list?tenant_id={tenant.id}&search=searched-of-this-test")
    received(collector, trace)
    sent = b"".join(collector.raw)
    for hidden in (person.email, "of-this-test", str(person.id), str(tenant.api.token), "127.0.0.1"):
        assert hidden.encode() not in sent


def test_background_work_is_traced(collector: Collector, tenant: TestTenant, tmp_path: Path) -> None:
    variables = environment(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_SERVICE_NAME=f"worker-{tenant.id}")
    worker = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "tenant_worker", "--seal-every", "1", "--tenants-per-second", "0"],
        env=variables | {"OTEL_BSP_SCHEDULE_DELAY": "50"},
        stdout=subprocess.DEVNULL,
    )
    try:

        def found() -> set[str]:
            return {span.name for name, span in collector.spans if name == f"worker-{tenant.id}"}

        assert within(60, lambda: {"seal_audit_trails", "SELECT"} <= found()), found()
    finally:
        worker.terminate()
        worker.wait(30)


def test_collector_that_is_away_fails_no_request(tmp_path: Path, django_db_setup: None) -> None:
    server = Server(tmp_path / "log", 1, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="10")
    server.wait()
    try:
        assert {server.call("GET", "/uflow/live").status_code for _ in range(20)} == {200}
    finally:
        server.end()
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    assert {line["event"] for line in lines if line.get("level") == "error"} <= {"traces_not_sent"}


NOT_INSTALLED = """
import sys
sys.modules["opentelemetry"] = None
sys.argv = ["server"]
from identity_platform.serving import server
server.main()
"""


def test_missing_package_is_named(django_db_setup: None) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", NOT_INSTALLED],
        env=environment(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9"),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "bin/serve: OTEL_EXPORTER_OTLP_ENDPOINT is set and OpenTelemetry is not installed: install "
        "requirements/tracing.txt, or unset the variable."
    )


def test_exporter_is_not_imported_while_traces_are_off(django_db_setup: None) -> None:
    # The client of Valkey imports OpenTelemetry's API and SDK wherever they are installed.
    code = "import identity_platform.wsgi, identity_platform.tracing, sys; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment(), cwd="/", capture_output=True, text=True, check=True
    )
    assert [name for name in ended.stdout.split() if name.startswith("opentelemetry.exporter")] == []
