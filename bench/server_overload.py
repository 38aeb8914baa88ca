"""A server that gets ten times what it can do, with little memory and a part of a processor.

With a whole processor its capacity would be near to what one process can send, and ten times that could not be offered
from the same machine. What it can do is measured on a twin that gets the same arrivals at the same time, on as few
connections as keep it busy: so both have the same machine, whatever else that does.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from penstock.server.port_settings import HttpSection

from . import ROOT
from .cgroup import ProcessLimits, limited
from .measure import FULL, Effort
from .report import CaseResult
from .server_process import MANY, ServerProcess, broker, load, publish_request

TIMES = 10
CONNECTIONS = 64
CROWD = 4 * HttpSection().requests_max
LARGE_CROWD = 10 * HttpSection().requests_max
# Of a large crowd each is refused once before any is served again, which takes a second or two of a quarter of a
# processor. A shorter span would measure little else.
CROWDED_S = 12.0
RECOVERY_S_MAX = 20
BYTES_MAX = 768 << 20
PROCESSOR_SHARE = 0.25


class OverloadResult(NamedTuple):
    """Messages a second without and with the crowd, seconds until it was as before, and particulars."""

    normal: float
    crowded: float
    recovery_s: float
    settings: dict[str, object]


@cache
def overload(effort: Effort, crowd: int = CROWD) -> OverloadResult:
    request, part = publish_request(MANY), 1.0 if effort is FULL else 0.25
    with small_broker() as (twin, _), small_broker() as (server, limits):
        capacity = max(closed(server, count, part, request) for count in (16, CONNECTIONS))
        span_s = CROWDED_S if crowd == LARGE_CROWD else part * CROWDED_S
        schedule = (TIMES * capacity / MANY, span_s)
        begun = [
            begin_arrivals(one, connections, schedule, request)
            for one, connections in ((twin, CONNECTIONS), (server, crowd))
        ]
        normal, crowded = (counts_of(one) for one in begun)
        recovery_s = recovered_after_s(server, twin, request)
        settings = particulars(crowded, limits, server)
    assert crowded["refused"], "more than the server lets in are turned away"
    assert not limits.killed, "it lives on the memory that it has"
    settings |= {"connections": crowd, "recovery_s": round(recovery_s, 1)}
    settings |= {"closed_loop_per_s": round(capacity), "arrivals_per_s": round(schedule[0])}
    settings |= {"of_closed_loop": round(goodput(crowded) / capacity, 2)}
    return OverloadResult(goodput(normal), goodput(crowded), recovery_s, settings)


@contextmanager
def small_broker() -> Iterator[tuple[ServerProcess, ProcessLimits]]:
    with (
        broker() as server,
        limited(server.process.pid, bytes_max=BYTES_MAX, processor_share=PROCESSOR_SHARE) as limits,
    ):
        yield server, limits


def particulars(
    crowded: dict[str, float], limits: ProcessLimits, server: ServerProcess
) -> dict[str, object]:
    names = ("sent", "unsent", "good", "refused", "other", "lost", "p50_ms", "p99_ms")
    peak = limits.peak_bytes()
    return {
        "messages_a_request": MANY,
        **{name: round(crowded[name]) for name in names},
        "rss_bytes": server.resident_bytes(),
        **({"peak_bytes": peak} if peak else {}),
        "limits": limits.reason or f"{BYTES_MAX} bytes, {PROCESSOR_SHARE:g} of a processor",
    }


def begin_arrivals(
    server: ServerProcess, connections: int, schedule: tuple[float, float], request: bytes
) -> subprocess.Popen[bytes]:
    """Start requests on a schedule, so many a second for so many seconds, from another process."""
    words = [str(one) for one in (server.port, connections, *schedule)]
    process = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-m", "bench.server_arrivals", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None, "it is a pipe"
    process.stdin.write(request)
    process.stdin.close()
    process.stdin = None
    return process


def counts_of(arrivals: subprocess.Popen[bytes]) -> dict[str, float]:
    """Returns the counts of the arrivals."""
    said, _ = arrivals.communicate()
    found: dict[str, float] = json.loads(said)
    return found


def goodput(found: dict[str, float]) -> float:
    return found["good"] * MANY / found["seconds"]


def closed(server: ServerProcess, connections: int, seconds: float, request: bytes) -> float:
    return goodput(load(server, connections, seconds, request))


def recovered_after_s(server: ServerProcess, twin: ServerProcess, request: bytes) -> float:
    """Returns how long it takes until a normal load gets four fifths of what it gets from an idle server.

    In half a second two servers that have nothing else to do differ by a tenth and more.
    """
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as threads:
        while True:
            done, usual = threads.map(
                lambda one: closed(one, CONNECTIONS, 0.5, request), (server, twin)
            )
            elapsed = time.perf_counter() - started
            if done >= 0.8 * usual or elapsed > RECOVERY_S_MAX:
                return elapsed


def measure_overload(effort: Effort) -> CaseResult:
    found = overload(effort)
    return CaseResult(found.crowded, found.normal, settings=found.settings)


def measure_large_crowd(effort: Effort) -> CaseResult:
    found = overload(effort, LARGE_CROWD)
    return CaseResult(found.crowded, found.normal, settings=found.settings)


def measure_recovery(effort: Effort) -> CaseResult:
    found = overload(effort)
    return CaseResult(found.recovery_s * 1000, settings=found.settings)
