"""The orders of the demo: what customers send, what goes wrong with it, and how workers take it. No I/O."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.client import Outgoing

ORDERS = 4000
REMINDERS = 60
FAR_REMINDERS = 5
CUSTOMERS = 400

_ITEMS = ("lamp", "desk", "chair", "shelf", "rug", "mirror", "clock", "vase")
# Of every hundred orders so many are urgent, and so on; the rest is normal. Gifts can wait, samples even longer.
_LANES = (("critical", 2), ("high", 10), ("low", 28), ("background", 30))
_BAD_ONE_IN = 400
_DECLINED_ONE_IN = 80
_BUSY_ONE_IN = 25


class Declined(Exception):
    """No attempt will ever succeed."""


class Busy(Exception):
    """The next attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Order:
    number: int
    customer: str
    item: str
    cents: int
    priority: str

    @property
    def is_bad(self) -> bool:
        """Whether the sender cut the order off in the middle."""
        return self.number % _BAD_ONE_IN == 13

    @property
    def outgoing(self) -> Outgoing:
        fields = {"order": self.number, "item": self.item, "cents": self.cents}
        text = json.dumps({**fields, "customer": self.customer})
        return Outgoing(
            (text[:-12] if self.is_bad else text).encode(),
            key=self.customer.encode(),
            headers=[("order", str(self.number))],
            priority=self.priority,
            idempotency_key=f"order-{self.number}".encode(),
        )


def orders() -> Iterator[Order]:
    """Yields orders, the same every time."""
    entropy = random.Random(7)  # noqa: S311  # The same show every time.
    for number in range(ORDERS):
        customer = f"customer-{entropy.randrange(CUSTOMERS)}"
        yield Order(
            number, customer, entropy.choice(_ITEMS), entropy.randrange(500, 90_000), lane(entropy)
        )


def lane(entropy: random.Random) -> str:
    drawn = entropy.randrange(100)
    for name, share in _LANES:
        if drawn < share:
            return name
        drawn -= share
    return "normal"


def charge(value: bytes, attempts: int) -> None:
    """The job of the billing workers. ValueError: it is no order. Declined, Busy."""
    number = int(json.loads(value)["order"])
    if number % _DECLINED_ONE_IN == 7:
        raise Declined("card declined")
    if number % _BUSY_ONE_IN == 0 and attempts == 1:
        raise Busy("the payment service is busy")


def pack(value: bytes, attempts: int) -> None:  # noqa: ARG001 - the same form as charge
    """The job of the warehouse workers."""
    json.loads(value)


@dataclass(frozen=True, slots=True)
class Reminder:
    number: int

    @property
    def value(self) -> bytes:
        return f"please pay order {self.number}".encode()

    @property
    def delay_s(self) -> float:
        """Returns a delay of some seconds."""
        return 2.0 + 3.0 * self.number / REMINDERS

    @property
    def outgoing(self) -> Outgoing:
        key = f"order-{self.number}".encode()
        return Outgoing(self.value, delay=self.delay_s, delay_key=key)


def reminders() -> Iterator[Reminder]:
    """Returns reminders, some of them for orders that will be paid in time."""
    return map(Reminder, range(REMINDERS))


def far_reminders() -> Iterator[Outgoing]:
    """Returns reminders that still wait when the demo is over."""
    for number in range(FAR_REMINDERS):
        text = f"how do you like your {_ITEMS[number % len(_ITEMS)]}?"
        key = f"review-{number}".encode()
        yield Outgoing(text.encode(), delay="30d", delay_key=key)
