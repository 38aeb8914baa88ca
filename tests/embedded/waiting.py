"""How many calls of an embedded queue or broker wait for messages: what only its driver knows."""

import threading
from collections.abc import Callable

import penstock


def waiting_calls(opened: penstock.Broker | penstock.Queue) -> int:
    driver = opened.driver if isinstance(opened, penstock.Broker) else opened._driver
    # A copy: another thread adds to them.
    return sum(map(len, [*driver.polls.waiting.values()])) + len(driver.members.waiting)


def until(condition: Callable[[], object]) -> None:
    patience = threading.Event()
    for _ in range(24_000):
        if condition():
            return
        patience.wait(0.005)
    raise AssertionError("it never happened")
