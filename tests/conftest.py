"""How much to try: three tiers of the same tests, chosen with `--tier`.

    check     every change; the whole gate stays under three minutes
    test      before a merge; under twenty minutes
    torture   as long as it takes

A test marked `tier("test")` is left out below that tier. Counts grow with the tier through the `effort`
fixture and the hypothesis profile of the same name.
"""

import gc
import os
import sys
from collections.abc import Generator
from typing import Protocol

import pytest
from hypothesis import HealthCheck, settings

TIERS = ("check", "test", "torture")
EXAMPLES = {"check": 25, "test": 60, "torture": 20_000}

LONGEST = ("tests/spark/", "tests/sim/test_node", "test_process.py", "_crashes.py", "test_kill.py")

# Tests that measure memory, or take much of it: one after the other, in the process that has Spark's.
HEAVY_GROUP = "spark"
HEAVY = (
    "tests/broker/test_large_polls.py",
    "tests/embedded/test_memory.py",
    "tests/kafka/test_hostile.py",
    "tests/live/",
    "tests/server/test_bad_storm.py",
    "tests/server/test_hostile_clients.py",
    "tests/server/test_memory.py",
    "tests/server/test_unread_answers.py",
)


class Effort(Protocol):
    def __call__(self, *, check: int, test: int, torture: int) -> int: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default="check", help="how much to try")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tier(name): leave this test out below the named tier")
    for tier in TIERS:
        settings.register_profile(
            tier,
            max_examples=EXAMPLES[tier],
            deadline=None,
            # The gate says the same thing twice about the same code; torture looks for what is new.
            derandomize=tier != "torture",
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(config.getoption("--tier"))
    # Brokers that tests start side by side share no port.
    os.environ.setdefault("PENSTOCK_BROKER__BINARY_PORT", "0")
    # Tests start hundreds of processes, each of which would compile our source again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    now = TIERS.index(config.getoption("--tier"))
    later = [item for item in items if lowest_tier(item) > now]
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if lowest_tier(item) <= now]
    for item in items:
        if item.nodeid.startswith(HEAVY):
            item.add_marker(pytest.mark.xdist_group(HEAVY_GROUP))
    # Two processes share the tests; with the longest ones first neither waits for the other at the end.
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are made here, and kept: to look for cycles among them took a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """One failing test stays one: what it left open ends with it, and not with a warning in another test.

    What is left after a file the collector looks at no more: late in a run, each look took it half a second.
    """
    failed_before = item.session.testsfailed
    result = yield
    if item.session.testsfailed > failed_before:
        collect_silently()
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


def collect_silently() -> None:
    """Free the frames of the last failure, and what they hold: clients, sockets, event loops."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
    try:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        gc.collect()
    finally:
        sys.unraisablehook = hook


def lowest_tier(item: pytest.Item) -> int:
    marks = [mark.args for mark in item.iter_markers("tier")]
    for args in marks:
        if len(args) != 1 or args[0] not in TIERS:
            raise pytest.UsageError(f"{item.nodeid}: tier takes one of {', '.join(TIERS)}")
    return max((TIERS.index(name) for (name,) in marks), default=0)


@pytest.fixture(scope="session")
def tier(pytestconfig: pytest.Config) -> str:
    return str(pytestconfig.getoption("--tier"))


@pytest.fixture(scope="session")
def effort(tier: str) -> Effort:
    """Picks the count of the current tier: `for seed in range(effort(check=10, test=200, torture=5000))`."""

    def pick(*, check: int, test: int, torture: int) -> int:
        return {"check": check, "test": test, "torture": torture}[tier]

    return pick
