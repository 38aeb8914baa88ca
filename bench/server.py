"""Measures `penstock serve` from outside: the server is one process, the load another.

Client and server share the machine, so rates are what both together can do; costs are the server's processor time.
"""

import re
import subprocess
import sys
import time
from functools import cache

from . import ROOT
from .measure import FULL, Effort
from .report import Case, CaseResult, Unit, on_ratio, on_value
from .server_binary import measure_binary_cost, measure_binary_latency
from .server_overload import measure_large_crowd, measure_overload, measure_recovery
from .server_process import (
    MANY,
    TOPIC,
    VALUE_BYTES,
    ServerProcess,
    broker,
    load,
    publish_request,
    running,
)
from .server_waits import CASES as WAITS

BATCH_CONNECTIONS = 4
SINGLE_CONNECTIONS = 50
FSYNC_CONNECTIONS = 64
IDLE = 10_000
LARGE_BYTES = 10 * 1024 * 1024
LARGE_COUNT = 20
RSS_MESSAGES, RSS_MESSAGES_QUICK = 10_000_000, 500_000
SETTINGS = {"value_bytes": VALUE_BYTES, "load": "a second process"}


def seconds_of(effort: Effort) -> float:
    return 3.0 if effort is FULL else 1.0


def best_rate(effort: Effort, connections: int, request: bytes) -> float:
    """Returns requests a second, the best of three."""
    with broker() as server:
        found = [load(server, connections, seconds_of(effort), request) for _ in range(3)]
    assert all(one["good"] == one["answered"] for one in found), "every publish succeeds"
    return max(one["answered"] / one["seconds"] for one in found)


def measure_publish_json_batch(effort: Effort) -> CaseResult:
    rate = best_rate(effort, BATCH_CONNECTIONS, publish_request(MANY))
    settings = {**SETTINGS, "messages_a_request": MANY, "connections": BATCH_CONNECTIONS}
    return CaseResult(rate * MANY, settings=settings)


def measure_publish_json_single(effort: Effort) -> CaseResult:
    rate = best_rate(effort, SINGLE_CONNECTIONS, publish_request(1))
    return CaseResult(rate, settings={**SETTINGS, "connections": SINGLE_CONNECTIONS})


def cost_us(server: ServerProcess, effort: Effort, request: bytes) -> float:
    """Returns processor time of the server for one request."""
    before = server.cpu_s()
    found = load(server, SINGLE_CONNECTIONS, seconds_of(effort), request)
    return (server.cpu_s() - before) / found["answered"] * 1e6


def measure_handler_cost(effort: Effort) -> CaseResult:
    request = publish_request(1)
    with broker() as ours, running("bench.server_peer", "empty") as empty:
        turns = [
            (cost_us(ours, effort, request), cost_us(empty, effort, request)) for _ in range(3)
        ]
    settings = {**SETTINGS, "clock": "the server's cpu", "connections": SINGLE_CONNECTIONS}
    return CaseResult(min(one for one, _ in turns), min(one for _, one in turns), settings=settings)


def measure_fsync_share(effort: Effort) -> CaseResult:
    with broker() as server:
        before = server.syncs()
        request = publish_request(1, acks="all")
        found = load(server, FSYNC_CONNECTIONS, seconds_of(effort), request)
        syncs = server.syncs() - before
    return CaseResult(
        syncs
        / max(found["answered"], 1),  # On a stalled machine no request may have been answered.
        settings={
            **SETTINGS,
            "connections": FSYNC_CONNECTIONS,
            "publishes_per_s": round(found["answered"] / found["seconds"]),
        },
    )


def measure_fsync_gain(effort: Effort) -> CaseResult:
    request = publish_request(1, acks="all")
    with broker("bench.server_peer", "slow") as server:
        many = load(server, FSYNC_CONNECTIONS, seconds_of(effort), request)
        one = load(server, 1, seconds_of(effort), request)
    return CaseResult(
        many["answered"] / many["seconds"],
        one["answered"] / one["seconds"],
        settings={**SETTINGS, "connections": FSYNC_CONNECTIONS, "fsync_ms": 5},
    )


@cache
def idle(effort: Effort) -> tuple[float, float, int]:
    """Returns the memory of idle long polls, the share of a core that they cost, and how many there were."""
    count = IDLE if effort is FULL else IDLE // 5
    poll = f"GET /topics/{TOPIC}/messages?group=g&timeout=60s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    command = [sys.executable, "-m", "bench.server_load"]
    with broker() as server:
        server.call("GET", f"/topics/{TOPIC}/messages?group=g")
        before = server.resident_bytes()
        waiting = subprocess.Popen(  # noqa: S603 - our own words
            [*command, str(server.port), str(count), "40"], stdin=subprocess.PIPE, cwd=ROOT
        )
        assert waiting.stdin is not None, "it is a pipe"
        waiting.stdin.write(poll.encode())
        waiting.stdin.close()
        try:
            until(server, count)
            cpu, started = server.cpu_s(), time.perf_counter()
            time.sleep(5 if effort is FULL else 2)
            share = (server.cpu_s() - cpu) / (time.perf_counter() - started)
            return server.resident_bytes() - before, share, count
        finally:
            waiting.kill()
            waiting.wait()


def until(server: ServerProcess, count: int) -> None:
    """Wait until so many polls wait."""
    for _ in range(600):
        found = re.search(r"penstock_http_waiting (\d+)", server.call("GET", "/metrics").decode())
        if found is not None and int(found[1]) >= count:
            return
        time.sleep(0.1)
    raise TimeoutError(f"{count} polls never waited at the same time")


def measure_idle(effort: Effort) -> CaseResult:
    memory, _, count = idle(effort)
    return CaseResult(memory * IDLE / count, settings={"polls": count, "scaled_to": IDLE})


def measure_idle_cpu(effort: Effort) -> CaseResult:
    _, share, count = idle(effort)
    # Zero ticks in the whole time is possible, and a result has to be above zero.
    return CaseResult(max(share * 1000, 0.1), settings={"polls": count, "unit": "cpu ms a second"})


def measure_start(effort: Effort) -> CaseResult:
    def once() -> float:
        started = time.perf_counter()
        with broker() as server:
            server.call("GET", "/health")
            return (time.perf_counter() - started) * 1000

    return CaseResult(min(once() for _ in range(min(effort.turns, 5))))


def measure_rss(effort: Effort) -> CaseResult:
    wanted = RSS_MESSAGES if effort is FULL else RSS_MESSAGES_QUICK
    request = publish_request(1000)
    with broker() as server:
        sent = 0.0
        while sent < wanted:
            found = load(server, BATCH_CONNECTIONS, seconds_of(effort), request)
            assert found["good"] == found["answered"], "every publish succeeds"
            sent += 1000 * found["good"]
        resident = server.resident_bytes()
    return CaseResult(resident, settings={**SETTINGS, "messages": int(sent)})


def measure_large(effort: Effort) -> CaseResult:
    request = publish_request(1, size=LARGE_BYTES)
    with broker() as server:
        found = [load(server, 2, seconds_of(effort), request) for _ in range(3)]
    best = max(one["answered"] / one["seconds"] for one in found)
    return CaseResult(best * LARGE_BYTES / 1e6, settings={"value_bytes": LARGE_BYTES})


OVERLOAD_BASELINE = (
    "the same arrivals at the same time on a twin with as few connections as keep it busy"
)
CASES = (
    Case(
        name="publish_json_batch",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_publish_json_batch,
        goal=on_value(">=250000"),
    ),
    Case(
        name="publish_json_single",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_publish_json_single,
        goal=on_value(">=10000"),
    ),
    Case(
        name="handler_cost",
        unit=Unit.US,
        measure=measure_handler_cost,
        goal=on_ratio(">=0.5"),
        baseline="an empty uvicorn answer",
    ),
    Case(
        name="binary_publish_cost",
        unit=Unit.US,
        measure=measure_binary_cost,
        goal=on_ratio(">=2"),
        baseline="the same over HTTP",
    ),
    Case(
        name="binary_publish_latency",
        unit=Unit.US,
        measure=measure_binary_latency,
        goal=on_ratio(">=1.5"),
        baseline="the same over HTTP",
    ),
    Case(
        name="publish_fsync_connections",
        unit=Unit.SYNCS,
        measure=measure_fsync_share,
        goal=on_value("<=0.2"),
    ),
    Case(
        name="publish_fsync_gain",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_fsync_gain,
        goal=on_ratio(">=20"),
        baseline="one connection, fsync of 5 ms",
    ),
    Case(name="idle", unit=Unit.BYTES, measure=measure_idle, goal=on_value("<=209715200")),
    Case(name="idle_cpu", unit=Unit.MS, measure=measure_idle_cpu, goal=on_value("<=50")),
    Case(name="start", unit=Unit.MS, measure=measure_start, goal=on_value("<=1000")),
    Case(name="rss", unit=Unit.BYTES, measure=measure_rss, goal=on_value("<=209715200")),
    Case(name="large", unit=Unit.MB_PER_S, measure=measure_large, goal=on_value(">=100")),
    Case(
        name="overload",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_overload,
        goal=on_ratio(">=0.8"),
        baseline=OVERLOAD_BASELINE,
    ),
    Case(
        name="overload_large_crowd",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_large_crowd,
        goal=on_ratio(">=0.8"),
        baseline=OVERLOAD_BASELINE,
    ),
    Case(
        name="overload_recovery", unit=Unit.MS, measure=measure_recovery, goal=on_value("<=10000")
    ),
    *WAITS,
)
