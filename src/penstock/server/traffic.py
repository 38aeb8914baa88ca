"""Counts of requests, for metrics. A request adds to a few numbers; nothing is looped over before metrics are read."""

from bisect import bisect_left
from dataclasses import dataclass, field

# Seconds. The first is below one publish, the last where a client would have given up.
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class Latency:
    """How long requests took: how many in each bucket, and all of them together."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass(slots=True)
class BinaryTraffic:
    """Of the binary port. Requests by name and outcome, both from tables of ours, so their number is bounded."""

    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    # What was turned away before it was a request, by reason.
    refused: dict[str, int] = field(default_factory=dict)
    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def count(self, api: str, outcome: str = "ok") -> None:
        place = (api, outcome)
        self.requests[place] = self.requests.get(place, 0) + 1

    def refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1


@dataclass(slots=True)
class Traffic:
    """By method, route and status. Routes are those of our table, so their number is bounded."""

    requests: dict[tuple[str, str, int], int] = field(default_factory=dict)
    latency: dict[str, Latency] = field(default_factory=dict)

    def count(self, method: str, route: str, status: int, duration_ns: int) -> None:
        # A method is whatever a client wrote; only ours get a series.
        place = (method if route != "unknown" else "any", route, status)
        self.requests[place] = self.requests.get(place, 0) + 1
        latency = self.latency.get(route)
        if latency is None:
            latency = self.latency[route] = Latency()
        latency.add(duration_ns / 1e9)
