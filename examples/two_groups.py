"""Two groups on one log: billing and shipping each see every order once, at their own pace.

python examples/two_groups.py
"""

import sys
import tempfile

import penstock

ORDERS = [("ann", "lamp"), ("bob", "desk"), ("ann", "chair"), ("cid", "shelf")]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with penstock.Broker(directory) as broker:
            broker.create_topic("orders", partitions=2)
            for customer, item in ORDERS:
                # Orders of one customer share a partition, and so keep their order.
                broker.publish("orders", item, key=customer)
            billed = broker.poll("orders", "billing")
            broker.ack(billed)
            say("billing", billed)
            # Shipping is slower: it takes one, and then the process ends.
            first = broker.poll("orders", "shipping", limit=1)
            broker.ack(first)
            say("shipping", first)
        with penstock.Broker(directory) as broker:
            rest = broker.poll("orders", "shipping")
            broker.ack(rest)
            say("shipping, after a restart", rest)
            lag = {group: sum(one.lag for one in broker.lag(group)) for group in broker.groups()}
    sys.stdout.write(f"lag: {lag}\n")


def say(who: str, messages: list) -> None:
    items = ", ".join(sorted(message.value.decode() for message in messages))
    sys.stdout.write(f"{who}: {items}\n")


if __name__ == "__main__":
    main()
