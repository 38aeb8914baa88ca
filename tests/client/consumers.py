"""What tests of consumers share: a client that tries again soon, filled topics, and what a group has left."""

from penstock.client import ClientSettings, Outgoing, RetryPolicy

QUICK = ClientSettings(retry=RetryPolicy(retries=5, backoff_ms=5, backoff_ms_max=50))


def filled(client, topic, count, *, partitions=3, **config):
    client.create_topic(topic, partitions=partitions, **config)
    if count:
        numbers = range(count)
        spread = [Outgoing(b"%d" % one, partition=one % partitions) for one in numbers]
        client.publish_many(topic, spread)


def left(client, topic):
    """How many messages of a topic its group has not finished."""
    return sum(one.lag for one in client.lag("readers").partitions if one.topic == topic)


def values(messages):
    return sorted(int(one.value) for one in messages)
