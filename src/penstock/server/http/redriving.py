"""Dead letters go back: all at once, or so many a second.

A paced redrive is spread over its request, which waits without a thread and ends after some seconds: the caller learns
what was done and calls again while `matched` is more than `redriven` and `failed`. Nothing about it is kept between
calls, so a restart, or a client that leaves, forgets nothing: what has not gone back is still listed.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...broker.partition import Now
from ...broker.redrive import Order, RedriveAnswer, Selection
from ...errors import BadRequest
from ...runtime.threads import ThreadDriver
from .requests import Request

RATE_MAX = 1_000_000
SECONDS_A_CALL = 10


def check_rate(rate: int | None) -> None:
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise BadRequest(f"rate must be in 1..{RATE_MAX} messages a second", field="rate")


def send_back(driver: ThreadDriver, topic: str, order: Order) -> RedriveAnswer:
    """All of them now. Blocks, so not on the loop."""
    driver.look(lambda _now: driver.node.topic(topic))
    driver.settle()

    def run(now: Now) -> RedriveAnswer:
        return driver.node.redrive(topic, order, now)

    if order.is_dry_run:
        return driver.look(run)
    answer = driver.change(run)
    driver.settle()
    return answer


async def send_paced(
    request: Request, topic: str, order: Order, rate: int, answer: RedriveAnswer
) -> None:
    """At most `rate` letters each second, until all are gone or the time is up. `answer` grows as they go."""
    door = request.door
    found = await door.driver.in_thread(
        lambda: send_back(door.driver.driver, topic, replace(order, is_dry_run=True))
    )
    answer.matched, answer.failed = found.matched, found.failed
    left = found.places
    for _ in range(SECONDS_A_CALL):
        await _send_some(request, topic, order, left[:rate], answer)
        left = left[rate:]
        if not left or door.is_draining:
            return
        # Also after the last, so that whoever calls again at once keeps to the rate.
        with request.ends_with_client():
            await door.sleep(1.0)


async def _send_some(
    request: Request,
    topic: str,
    order: Order,
    places: Sequence[tuple[int, int]],
    answer: RedriveAnswer,
) -> None:
    if not places:
        return
    some = replace(order, selection=Selection(offsets=frozenset(places)), limit=len(places))
    driver = request.door.driver
    sent = await driver.in_thread(lambda: send_back(driver.driver, topic, some))
    answer.redriven += sent.redriven
    answer.failed += sent.failed
