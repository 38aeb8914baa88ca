"""The export to an OpenTelemetry collector, against one that remembers what it was sent."""

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

import penstock
from penstock.server.otlp import SpanExport
from penstock.server.otlp_settings import OtlpSection

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


class Collector:
    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.keys: set[str | None] = set()
        self.status = 200
        outer = self

        class TraceReceiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.keys.add(self.headers["x-key"])
                if outer.status == 200:
                    assert self.path == "/v1/traces"
                    outer.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(outer.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), TraceReceiver)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.server.shutdown()
    found.server.server_close()


def export_of(collector: Collector, **settings: object) -> SpanExport:
    given = {"sample_ratio": 1.0, "interval_ms": 10, "timeout_ms": 120_000, **settings}
    section = OtlpSection(endpoint=collector.url, headers=("x-key=secret",), **given)
    return SpanExport(section, "broker-7", logging.getLogger("test"))


def attributes(span: Span) -> dict[str, object]:
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value") or "") for one in span.attributes
    }


def test_publish_and_process_are_spans_of_one_trace_and_linked(tmp_path, collector):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=1)
        broker.publish("orders", b"before the export began")
        export = export_of(collector)
        export.start(broker.driver)
        broker.publish("orders", b"a", headers={"traceparent": PARENT})
        broker.publish("orders", b"b", headers={"traceparent": UNSAMPLED})
        broker.publish("orders", b"c")
        held = broker.poll("orders", "billing", member="m-1")
        broker.reject(held[1:2], "no bulb")
        broker.ack(held[3:])
        broker.sync()
        derived = broker.journey("orders", 0, 3).trace_id
        export.stop()
    spans = collector.spans()
    by_trace: dict[str, list[Span]] = {}
    for one in spans:
        by_trace.setdefault(one.trace_id.hex(), []).append(one)
    assert by_trace.keys() >= {PARENT.split("-")[1], derived}
    assert UNSAMPLED.split("-")[1] not in by_trace

    published, failed = by_trace[PARENT.split("-")[1]][:2]
    assert (published.name, published.kind) == ("publish orders", Span.SPAN_KIND_PRODUCER)
    assert published.parent_span_id.hex() == PARENT.split("-")[2]
    assert (failed.name, failed.kind) == ("process orders", Span.SPAN_KIND_CONSUMER)
    assert failed.parent_span_id == published.span_id
    assert [one.span_id for one in failed.links] == [published.span_id]
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert failed.status.message == "no bulb"
    told = attributes(failed)
    assert told["messaging.consumer.group.name"] == "billing"
    assert told["messaging.client.id"] == "m-1"
    assert told["penstock.outcome"] == "rejected"
    assert told["penstock.dead_letter"] is True
    assert failed.start_time_unix_nano <= failed.end_time_unix_nano

    kept, done = by_trace[derived]
    assert kept.parent_span_id == b""
    assert (done.name, done.status.code) == ("process orders", Status.STATUS_CODE_UNSET)
    assert attributes(done)["penstock.outcome"] == "acked"
    (resource,) = {
        tuple((one.key, one.value.string_value) for one in found.resource.attributes)
        for request in collector.requests
        for found in request.resource_spans
    }
    assert {("service.name", "penstock"), ("service.instance.id", "broker-7")} <= {*resource}
    assert collector.keys == {"secret"}
    assert (export.exported, export.dropped) == (len(spans), 0)


def test_a_collector_that_is_away_costs_spans_and_nothing_else(tmp_path, collector):
    collector.status = 503
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=1)
        export = export_of(collector, timeout_ms=100)
        export.start(broker.driver)
        broker.publish("orders", b"a")
        assert len(broker.poll("orders", "billing")) == 1
        export.stop()
    assert export.exported == 0
    assert export.dropped >= 1


def test_nothing_is_sent_of_traces_that_are_not_sampled(tmp_path, collector):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=1)
        export = export_of(collector, sample_ratio=0.0)
        export.start(broker.driver)
        broker.publish("orders", b"a")
        export.stop()
    assert collector.requests == []
