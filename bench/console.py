"""Measures the console in a real browser: how soon a screen is there, and what open consoles cost the broker."""

import json
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .measure import FULL, Effort
from .report import Case, CaseResult, Unit, on_ratio, on_value
from .server_process import ServerProcess, broker

TURNS = 5
CONSOLES = 20
WATCHED_S = 60
TOPIC = "orders"
# Rows of a table, or what is said in the place of one.
_CONTENT = "main tbody tr, main .empty"
_PAGE_LETTERS = 500


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's browser, driven by Playwright. ImportError, FileNotFoundError: one of them is not here."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        raise FileNotFoundError("chromium")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()


def fill(server: ServerProcess, topics: int, letters: int) -> None:
    """Make topics, and dead letters of one of them."""
    for number in range(topics):
        server.call("POST", "/topics", {"name": f"topic-{number:04}", "num_partitions": 1})
    server.call("POST", "/topics", {"name": TOPIC, "num_partitions": 1})
    messages = [
        {"value": json.dumps({"order": one, "note": "x" * 60})} for one in range(_PAGE_LETTERS)
    ]
    for number in range(letters // _PAGE_LETTERS):
        server.call("POST", f"/topics/{TOPIC}/messages", {"messages": messages})
        target = f"/topics/{TOPIC}/messages?group=billing&max={_PAGE_LETTERS}&timeout=10s"
        held = json.loads(server.call("GET", target))["messages"]
        receipts = [one["receipt_handle"] for one in held]
        body = {"receipt_handles": receipts, "reason": f"error {number % 7}"}
        server.call("POST", "/messages/reject", body)


def shown_ms(browser: Any, server: ServerProcess, place: str) -> float:
    """How long it takes from opening the address, with nothing cached, until the content of a screen is there."""
    context = browser.new_context()
    page = context.new_page()
    started_s = time.perf_counter()
    page.goto(f"http://127.0.0.1:{server.port}/#/{place}")
    page.locator(_CONTENT).first.wait_for(timeout=120_000)
    found_s = time.perf_counter() - started_s
    context.close()
    return found_s * 1000


def _sizes(effort: Effort) -> tuple[int, int]:
    return (1000, 10_000) if effort.turns >= FULL.turns else (100, 1000)


def _paint(place: str, empty_place: str) -> Any:
    def measure(effort: Effort) -> CaseResult:
        """Medians; the two brokers take turns."""
        topics, letters = _sizes(effort)
        try:
            with chromium() as browser, broker() as empty, broker() as full:
                fill(full, topics, letters)
                ours, theirs = [], []
                for _ in range(TURNS + 1):
                    ours.append(shown_ms(browser, full, place))
                    theirs.append(shown_ms(browser, empty, empty_place))
        except (ImportError, FileNotFoundError) as error:
            return CaseResult(None, missing=(str(error),))
        # The first turn starts the browser's processes.
        return CaseResult(
            statistics.median(ours[1:]),
            statistics.median(theirs[1:]),
            settings={"topics": topics, "dead_letters": letters, "turns": TURNS},
        )

    return measure


def measure_consoles(effort: Effort) -> CaseResult:
    """Measure what share of a core the broker spends on open overviews. Publishing takes a core, so that is the share
    of the rate that they cost; the browser, which needs much more, takes no part in the figure.
    """
    topics, letters = _sizes(effort)
    try:
        with chromium() as browser, broker() as server:
            fill(server, topics, letters)
            alone = _cpu_points(server)
            pages = [browser.new_context().new_page() for _ in range(CONSOLES)]
            for page in pages:
                page.goto(f"http://127.0.0.1:{server.port}/")
                page.locator(_CONTENT).first.wait_for(timeout=120_000)
            watched = _cpu_points(server)
    except (ImportError, FileNotFoundError) as error:
        return CaseResult(None, missing=(str(error),))
    settings = {"consoles": CONSOLES, "topics": topics, "seconds": WATCHED_S, "alone": alone}
    return CaseResult(max(0.0, watched - alone), settings=settings)


def _cpu_points(server: ServerProcess) -> float:
    before_s, started_s = server.cpu_s(), time.monotonic()
    time.sleep(WATCHED_S)
    return 100 * (server.cpu_s() - before_s) / (time.monotonic() - started_s)


CASES = (
    Case(
        name="topics shown",
        unit=Unit.MS,
        measure=_paint("topics", "topics"),
        goal=on_ratio(">=0.25"),
        baseline="the console of an empty broker",
    ),
    Case(
        name="dead letters shown",
        unit=Unit.MS,
        measure=_paint(f"dead-letters/{TOPIC}", "dead-letters"),
        goal=on_ratio(">=0.25"),
        baseline="the console of an empty broker",
    ),
    Case(
        name="20 consoles open",
        unit=Unit.POINTS,
        measure=measure_consoles,
        goal=on_value("<=5"),
    ),
)
