"""Work on orders, eight at a time, until Ctrl-C. Needs a broker: penstock serve."""

from penstock.client import Client, Reject


def pack(message):
    if b"order" not in message.value:
        raise Reject("no order")  # a dead letter at once; after any other error it is tried again
    print("packed", message.value)


with Client() as client:
    client.worker("orders", "packing", pack, concurrency=8, deadline="30s").run()
