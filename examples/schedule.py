"""Send messages that consumers get later. Needs a broker: penstock serve."""

from penstock.client import Client

with Client() as client:
    client.publish("orders", b"remind ann", delay="2h")
    client.publish("orders", b"wake bob", deliver_at="2036-01-31T08:00:00Z")
    for one in client.delayed("orders"):
        print(one.deliver_at, one.value)
