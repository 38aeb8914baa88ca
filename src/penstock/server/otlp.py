"""Sends spans of sampled messages to an OpenTelemetry collector, over OTLP/HTTP.

A thread asks the node, now and then, for what is new in its logs (`TailSpans`), so that nothing is done for a span
where messages are published and acked. A collector that is away costs spans, and nothing else.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..api.health import Sample
from ..api.spans import SAMPLED_ALL, PartitionIdentity, SpanPosition, TailSpans
from ..errors import PenstockError, Refused
from ..observability.spans import FinishedSpan, SpanAssembler
from ..runtime.threads import ThreadDriver
from .otlp_settings import OtlpSection

_COMPLAIN_S = 60.0


class SpanExport:
    """The thread that exports. Refused if the extra is not installed."""

    _driver: ThreadDriver

    def __init__(self, settings: OtlpSection, broker_id: str, logger: logging.Logger) -> None:
        self._settings, self._logger = settings, logger
        self._sender = _Sender(settings, broker_id)
        self._assembler = SpanAssembler()
        self._bound = round(settings.sample_ratio * SAMPLED_ALL)
        self._positions: Mapping[PartitionIdentity, SpanPosition] = {}
        self.exported = self.dropped = self.skipped = 0
        self._complained_s = -_COMPLAIN_S
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-otlp", daemon=True)

    def start(self, driver: ThreadDriver) -> None:
        """Begin with what is published from now on."""
        self._driver = driver
        command = TailSpans(self._positions, self._bound, starts_at_end=True)
        self._positions = self._driver.execute(command).positions
        self._thread.start()

    def stop(self) -> None:
        """Send what there is, and return when it is sent, or the time for it is over."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stop.wait(self._settings.interval_ms / 1000)
            try:
                self._follow()
            except PenstockError as error:
                self._complain("otlp: spans could not be read: %s", error)
        self._sender.close()

    def _follow(self) -> None:
        """Export everything that is new."""
        is_caught_up = False
        while not is_caught_up:
            page = self._driver.execute(TailSpans(self._positions, self._bound))
            spans = self._assembler.add(page.parts)
            self._positions = self._assembler.bounded(page.positions)
            is_caught_up = page.is_caught_up
            if page.skipped:
                self.skipped += page.skipped
                self._complain("otlp: too far behind: %d messages are not traced", page.skipped)
            if spans and self._sender.send(spans):
                self.exported += len(spans)
            elif spans:
                self.dropped += len(spans)
                self._complain("otlp: %d spans could not be sent to the collector", self.dropped)
                if self._stop.is_set():
                    return

    def _complain(self, text: str, *fields: object) -> None:
        now_s = time.monotonic()
        if now_s - self._complained_s >= _COMPLAIN_S:
            self._complained_s = now_s
            self._logger.warning(text, *fields)

    def samples(self) -> Iterator[Sample]:
        for outcome, count in (("exported", self.exported), ("dropped", self.dropped)):
            yield Sample("penstock_otlp_spans_total", {"outcome": outcome}, count)


class _Sender:
    """OpenTelemetry's exporter, and our spans as its own."""

    def __init__(self, settings: OtlpSection, broker_id: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import ReadableSpan
            from opentelemetry.sdk.trace.export import SpanExportResult
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError:
            raise Refused(
                "otlp.endpoint needs OpenTelemetry: pip install 'penstock[otlp]'"
            ) from None
        self._span: Any = ReadableSpan
        self._success = SpanExportResult.SUCCESS
        self._scope = InstrumentationScope("penstock")
        self._resource = Resource(
            {"service.name": settings.service_name, "service.instance.id": broker_id}
        )
        pairs = (one.partition("=") for one in settings.headers)
        self._exporter: Any = OTLPSpanExporter(
            endpoint=settings.endpoint,
            headers={name.strip(): value.strip() for name, _, value in pairs},
            timeout=settings.timeout_ms / 1000,
        )

    def send(self, spans: Sequence[FinishedSpan]) -> bool:
        """Whether the collector has taken them; asked again for as long as the time-out lasts."""
        return bool(self._exporter.export([self._made(one) for one in spans]) is self._success)

    def close(self) -> None:
        self._exporter.shutdown()

    def _made(self, one: FinishedSpan) -> Any:
        from opentelemetry.trace import Link, SpanKind
        from opentelemetry.trace.status import Status, StatusCode

        link = _context(one.trace_id, one.link_span_id)
        return self._span(
            one.name,
            context=_context(one.trace_id, one.span_id),
            parent=_context(one.trace_id, one.parent_span_id),
            resource=self._resource,
            attributes=one.attributes,
            links=() if link is None else (Link(link),),
            kind=SpanKind.PRODUCER if link is None else SpanKind.CONSUMER,
            status=Status(StatusCode.UNSET)
            if one.error is None
            else Status(StatusCode.ERROR, one.error),
            start_time=one.start_ns,
            end_time=one.end_ns,
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> Any:
    """A span as others refer to it; None if there is none."""
    from opentelemetry.trace import SpanContext, TraceFlags

    if not span_id:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=flags)
