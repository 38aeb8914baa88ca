"""A server that gets ten times what it can do, with little memory and a part of a processor.

With a whole processor its capacity would be near to what one process can send, and ten times that could not be offered
from the same machine. When it is measured what the server can do, the same arrivals come on as few connections as keep
it busy, so both times the other processor has as much to do.
"""

import json
import subprocess
import sys
import time
from functools import cache
from typing import NamedTuple

from ..server.settings import HttpSection
from .cgroup import Limited, limited
from .measure import FULL, Effort
from .report import Measured
from .server_process import MANY, Running, broker, load, publish_request

TIMES = 10
CONNECTIONS = 64
CROWD = 4 * HttpSection().requests_max
NORMAL_S, CROWDED_S = 5.0, 12.0
RECOVERY_S_MAX = 20
BYTES_MAX = 768 << 20
PROCESSOR_SHARE = 0.25


class Overloaded(NamedTuple):
    """Messages a second without and with the crowd, seconds until it was as before, and particulars."""

    normal: float
    crowded: float
    recovery_s: float
    settings: dict[str, object]


@cache
def overload(effort: Effort) -> Overloaded:
    request, part = publish_request(MANY), 1.0 if effort is FULL else 0.25
    with (
        broker() as server,
        limited(server.process.pid, bytes_max=BYTES_MAX, processor_share=PROCESSOR_SHARE) as limits,
    ):
        capacity = max(closed(server, count, part, request) for count in (16, CONNECTIONS))
        per_s = TIMES * capacity / MANY
        normal = arrivals(server, CONNECTIONS, per_s, part * NORMAL_S, request)
        crowded = arrivals(server, CROWD, per_s, part * CROWDED_S, request)
        recovery_s = recovered_after_s(server, request, goodput(normal))
        settings = particulars(crowded, limits, server)
    assert crowded["refused"], "more than the server lets in are turned away"
    assert not limits.killed, "it lives on the memory that it has"
    settings |= {"closed_loop_per_s": round(capacity), "arrivals_per_s": round(per_s)}
    settings |= {"recovery_s": round(recovery_s, 1)}
    return Overloaded(goodput(normal), goodput(crowded), recovery_s, settings)


def particulars(crowded: dict[str, float], limits: Limited, server: Running) -> dict[str, object]:
    names = ("sent", "unsent", "good", "refused", "other", "lost", "p50_ms", "p99_ms")
    peak = limits.peak_bytes()
    return {
        "connections": CROWD,
        "messages_a_request": MANY,
        **{name: round(crowded[name]) for name in names},
        "rss_bytes": server.resident_bytes(),
        **({"peak_bytes": peak} if peak else {}),
        "limits": limits.reason or f"{BYTES_MAX} bytes, {PROCESSOR_SHARE:g} of a processor",
    }


def arrivals(
    server: Running, connections: int, per_s: float, seconds: float, request: bytes
) -> dict[str, float]:
    """What came of requests on a schedule, from another process."""
    words = [str(one) for one in (server.port, connections, per_s, seconds)]
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-m", "penstock.bench.server_arrivals", *words],
        input=request,
        capture_output=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def goodput(found: dict[str, float]) -> float:
    return found["good"] * MANY / found["seconds"]


def closed(server: Running, connections: int, seconds: float, request: bytes) -> float:
    return goodput(load(server, connections, seconds, request))


def recovered_after_s(server: Running, request: bytes, normal: float) -> float:
    """How long it takes until a normal load gets nine tenths of what it got before."""
    started = time.perf_counter()
    while closed(server, CONNECTIONS, 0.5, request) < 0.9 * normal:
        if time.perf_counter() - started > RECOVERY_S_MAX:
            break
    return time.perf_counter() - started


def measure_overload(effort: Effort) -> Measured:
    found = overload(effort)
    return Measured(found.crowded, found.normal, settings=found.settings)


def measure_recovery(effort: Effort) -> Measured:
    found = overload(effort)
    return Measured(found.recovery_s * 1000, settings=found.settings)
