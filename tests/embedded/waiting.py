"""How many calls of an embedded queue or broker wait for messages: what only its driver knows."""

import penstock


def waiting_calls(opened: penstock.Broker | penstock.Queue) -> int:
    driver = opened.driver if isinstance(opened, penstock.Broker) else opened._driver
    # A copy: another thread adds to them.
    return sum(map(len, [*driver.polls.waiting.values()]))
