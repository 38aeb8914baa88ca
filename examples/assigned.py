"""An assigned group: each partition has one reader, and a new member takes over only its share.

python examples/assigned.py
"""

import sys

import penstock


def main() -> None:
    with penstock.Broker() as broker:
        broker.create_topic("orders", partitions=6)
        for number in range(12):
            broker.publish("orders", f"order {number}", partition=number % 6)
        ann = broker.join("orders", "billing", member="ann", order="strict")
        bob = broker.join("orders", "billing", member="bob", on_assigned=tell("bob gets"))
        # Ann hears with her next call that she has to let go of some, finishes them, and Bob gets them.
        finish(ann)
        finish(bob)
        finish(ann)
        ann.leave()
        finish(bob)
        lag = sum(one.lag for one in broker.lag("billing"))
        sys.stdout.write(f"left to do: {lag}\n")
        for rebalance in broker.describe_group("billing").rebalances:
            sys.stdout.write(f"{rebalance}\n")


def tell(what: str):
    return lambda partitions: sys.stdout.write(f"{what} {', '.join(partitions)}\n")


def finish(member: penstock.Member) -> None:
    messages = member.poll()
    if messages:
        member.commit(messages)


if __name__ == "__main__":
    main()
