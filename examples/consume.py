"""Read orders, in the order of their partitions, as one of several. Needs a broker: penstock serve."""

from penstock.client import Client

with Client() as client:
    with client.consumer("orders", "billing", mode="assigned") as consumer:
        for message in consumer.stream(idle="2s"):  # without idle: for ever
            print(message.partition, message.offset, message.key, message.value)
            message.ack()
