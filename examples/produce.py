"""Store orders, each once. Needs a broker: penstock serve."""

from penstock.client import Client

with Client() as client:  # penstock://127.0.0.1:9092
    client.create_topic("orders", exist_ok=True)
    with client.producer("orders", acks="all") as producer:
        for number in range(100):
            producer.send(b"order %d" % number, key=b"customer-%d" % (number % 7))
    print(producer.stored, "stored")  # all of them; otherwise an error was raised
