"""One trace from HTTP to the last token, as a collector gets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from app.tracing import continued, traceparent
from tests.admission.fakes import until
from tests.admission.services import fake, http, picture, service

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Keeps the spans it is sent, by name."""

    def __init__(self) -> None:
        self.spans: dict[str, list[tuple[str, Span]]] = {}
        """The service that sent it, and the span."""
        self.url = ""

    def take(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            (sender,) = [a.value.string_value for a in group.resource.attributes if a.key == "service.name"]
            for span in (span for scope in group.scope_spans for span in scope.spans):
                self.spans.setdefault(span.name, []).append((sender, span))

    def of(self, name: str, trace: str = TRACE) -> list[tuple[str, Span]]:
        return [pair for pair in self.spans.get(name, []) if pair[1].trace_id.hex() == trace]


@contextmanager
def collector() -> Iterator[Collector]:
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kept.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()


async def test_a_request_is_one_trace_over_both_processes() -> None:
    with collector() as kept:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": kept.url,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        with service(fake("serve"), **environ) as running:
            await running.ready()
            async with http(running) as client:
                response = await client.post(
                    "/v1/detect?object=the+secret+phrase",
                    content=picture(),
                    headers={"content-type": "image/png", "traceparent": f"00-{TRACE}-{PARENT}-01"},
                )
                assert response.status_code == 200
                bad = await client.post(
                    "/v1/detect?object=bad", content=picture(), headers={"content-type": "image/png"}
                )
                assert bad.status_code == 422
            await until(lambda: all(kept.of(name) for name in ("POST /v1/detect", "answer", "engine")))
            await until(lambda: len(kept.spans["answer"]) == 2)
        (web,), (answer,), (intake,), (engine,) = map(
            kept.of, ("POST /v1/detect", "answer", "intake", "engine")
        )
    assert (web[0], answer[0], engine[0]) == ("pointbox-api", "pointbox-worker", "pointbox-worker")
    assert web[1].parent_span_id.hex() == PARENT
    assert answer[1].parent_span_id == web[1].span_id
    assert {intake[1].parent_span_id, engine[1].parent_span_id} == {answer[1].span_id}
    assert web[1].start_time_unix_nano <= intake[1].start_time_unix_nano <= engine[1].start_time_unix_nano
    assert engine[1].end_time_unix_nano <= web[1].end_time_unix_nano
    attributes = {a.key: a.value for a in answer[1].attributes}
    assert attributes["pointbox.output_tokens"].int_value == 5
    failed = [span for _, span in kept.spans["answer"] if span.trace_id.hex() != TRACE]
    assert [a.value.string_value for a in failed[0].attributes if a.key == "pointbox.problem"] == [
        "invalid-phrase"
    ]
    assert "secret" not in str(kept.spans)


def test_without_a_collector_there_is_nothing_to_continue() -> None:
    assert traceparent() == ""
    assert not continued({"traceparent": "nonsense"})
