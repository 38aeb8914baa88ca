"""A worker with a tracer: each handler is a span of the trace that its message came with."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from penstock.client import AsyncClient, Client, Reject
from penstock.errors import Refused

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def finished():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(finished):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(finished))
    return provider.get_tracer("test")


def test_a_handler_is_a_child_of_the_span_that_sent_its_message(url, tracer, finished):
    current = []
    with Client(url) as client:
        client.create_topic("traced", partitions=1)
        client.publish("traced", b"a", headers=[("traceparent", PARENT.encode())])
        client.publish("traced", b"b")

        def handle(message):
            current.append(get_current_span().get_span_context().span_id)
            if len(current) == 2:
                worker.stop()
                raise Reject("no bulb")

        worker = client.worker("traced", "g", handle, tracer=tracer)
        worker.run()
    first, second = finished.get_finished_spans()
    trace_id, span_id = (int(one, 16) for one in PARENT.split("-")[1:3])
    assert (first.name, first.kind) == ("process traced", SpanKind.CONSUMER)
    assert (first.context.trace_id, first.parent.span_id) == (trace_id, span_id)
    assert [one.context.span_id for one in first.links] == [span_id]
    assert first.status.status_code is StatusCode.UNSET
    assert first.attributes["messaging.consumer.group.name"] == "g"
    # A message without a trace begins one.
    assert (second.parent, second.links) == (None, ())
    assert second.status.status_code is StatusCode.ERROR
    assert current == [first.context.span_id, second.context.span_id]


async def test_an_asynchronous_handler_too(url, tracer, finished):
    async with AsyncClient(url) as client:
        await client.create_topic("traced-too", partitions=1)
        await client.publish("traced-too", b"a", headers=[("traceparent", PARENT.encode())])

        async def handle(_message):
            assert get_current_span().get_span_context().is_valid
            worker.stop()

        worker = client.worker("traced-too", "g", handle, tracer=tracer)
        await worker.run()
    (span,) = finished.get_finished_spans()
    assert span.parent.span_id == int(PARENT.split("-")[2], 16)
    assert span.status.status_code is StatusCode.UNSET


def test_a_tracer_has_to_be_one(url):
    with Client(url) as client, pytest.raises(Refused):
        client.worker("t", "g", print, tracer="a tracer")
