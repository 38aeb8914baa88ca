"""Poison messages: what cannot be processed leaves the queue with its reason, and comes back once the bug is fixed.

Runs on a clock of its own, so the minutes between the retries take no time.

    python examples/poison.py
"""

import json
import sys

import penstock
from penstock.testing import VirtualClock


def total(message, *, knows_strings: bool) -> int:
    amount = json.loads(message.value)["amount"]
    if not knows_strings and not isinstance(amount, int):
        raise ValueError(f"amount is {amount!r}")
    return int(amount)


def run(broker: penstock.Broker, *, knows_strings: bool) -> int:
    """Work until nothing is left, retries included."""
    summed = 0
    for _ in range(10):
        for message in broker.poll("payments", "ledger"):
            try:
                summed += total(message, knows_strings=knows_strings)
            except json.JSONDecodeError as error:
                broker.reject(message, f"not JSON: {error.msg}")
            except ValueError as error:
                broker.nack(message, str(error))
            else:
                broker.ack(message)
        broker.clock.advance("1m")
    return summed


def main() -> None:
    with penstock.Broker(clock=VirtualClock()) as broker:
        broker.create_topic("payments", partitions=1)
        for value in ('{"amount": 5}', '{"amount": "7"}', "five", '{"amount": 1}'):
            broker.publish("payments", value)
        sys.stdout.write(f"sum {run(broker, knows_strings=False)}\n")
        for letter in broker.dead_letters("payments"):
            story = letter.provenance
            sys.stdout.write(
                f"dead: {letter.message.value.decode()} after {story.delivery_attempts}, "
                f"{story.dlq_reason}: {story.last_error}\n"
            )
        # The fix is deployed: only the group that failed gets them again.
        broker.redrive("payments", target="group")
        sys.stdout.write(f"sum {run(broker, knows_strings=True)} after the fix\n")
        sys.stdout.write(f"still dead: {len(broker.dead_letters('payments'))}\n")


if __name__ == "__main__":
    main()
