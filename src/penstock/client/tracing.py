"""Spans of handlers, made with the program's own OpenTelemetry tracer. Nothing is imported unless there is one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import Refused
from .leased_messages import Delivered

_CARRIED = ("traceparent", "tracestate")


def check_tracer(tracer: object) -> None:
    """Refused if it is no tracer of OpenTelemetry."""
    if tracer is not None and not callable(getattr(tracer, "start_as_current_span", None)):
        raise Refused(
            f"tracer must be one of OpenTelemetry, as trace.get_tracer gives, got {tracer!r:.100}"
        )


@contextmanager
def process_span(tracer: Any, message: Delivered, group: str) -> Iterator[None]:
    """The span of one handler: a child of the span that the message was sent in, and linked to it.

    It is the current span while the handler runs, and fails with the handler.
    """
    from opentelemetry.trace import Link, SpanKind, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {
        name: value.decode("utf-8", "replace")
        for name, value in message.headers
        if name in _CARRIED and value is not None
    }
    sent = TraceContextTextMapPropagator().extract(carrier)
    origin = get_current_span(sent).get_span_context()
    attributes = {
        "messaging.system": "penstock",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.topic,
        "messaging.destination.partition.id": str(message.partition),
        "messaging.message.id": f"{message.partition}/{message.offset}",
        "messaging.consumer.group.name": group,
        "penstock.attempt": message.attempts,
    }
    with tracer.start_as_current_span(
        f"process {message.topic}",
        context=sent if origin.is_valid else None,
        kind=SpanKind.CONSUMER,
        links=(Link(origin),) if origin.is_valid else (),
        attributes=attributes,
    ):
        yield
