"""The section of the configuration for an OpenTelemetry collector."""

from dataclasses import dataclass

from .setting_keys import key, require, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpSection:
    """Spans of messages for an OpenTelemetry collector. Takes the extra `penstock[otlp]`."""

    endpoint: str = key(
        "",
        "Where the collector takes traces over OTLP/HTTP, as `http://127.0.0.1:4318/v1/traces`; empty: off.",
    )
    sample_ratio: float = key(
        0.01,
        "The part of traces that is exported, by trace id. A message that came with a trace goes with that.",
    )
    service_name: str = key("penstock", "The `service.name` of the spans.")
    headers: tuple[str, ...] = key(
        (), "Headers of requests to the collector, each as `name=value`.", is_secret=True
    )
    interval_ms: int = key(1000, "How often spans are sent.")
    timeout_ms: int = key(
        10_000, "How long a collector that does not answer is asked again; then its spans are lost."
    )

    def __post_init__(self) -> None:
        is_url = self.endpoint.startswith(("http://", "https://"))
        require("endpoint", self.endpoint, not self.endpoint or is_url, "an address http(s)://")
        require("sample_ratio", self.sample_ratio, 0 <= self.sample_ratio <= 1, "in 0..1")
        for one in self.headers:
            require("headers", one[:40], "=" in one, "name=value")
        require_positive(self, "interval_ms", "timeout_ms")
