"""Where queries begin and end, by what the broker says of its partitions."""

import pytest

from penstock.api.publish import Publish
from penstock.model import Message
from penstock.spark.broker_ends import BrokerEnds, batch_ranges, resolve
from penstock.spark.offsets import OffsetRange
from penstock.spark.option_reader import UsedBy
from penstock.spark.options import parse_options
from tests.replication.test_uncommitted import Led

from .readers import asked, fill, planned

LATE = "2200-01-01T00:00:00Z"


def test_a_time_is_never_behind_what_readers_see():
    """The last message is not on the standby yet."""
    led = Led()
    led.sync()
    led.commit()
    led.execute(Publish("orders", [Message(b"b")]))
    given = {"subscribe": "orders"}
    batch = parse_options({**given, "endingTimestamp": LATE}, UsedBy.BATCH)
    assert batch_ranges(BrokerEnds(led, batch), batch) == [OffsetRange("orders", 0, 0, 1)]
    stream = parse_options({**given, "startingTimestamp": LATE}, UsedBy.STREAM)
    start = resolve(BrokerEnds(led, stream), stream, stream.start, "startingTimestamp")
    assert start == {"orders/0": 1}


@pytest.mark.tier("test")
@pytest.mark.parametrize("late", ["9999-12-31T23:59:59Z", "9999999999999"])
def test_a_time_beyond_all_messages_is_the_end_and_one_before_them_the_beginning(
    broker, client, topic, late
):
    fill(client, topic, 5)
    whole, day_one = [OffsetRange(topic, 0, 0, 5)], "0001-01-01T00:00:00Z"
    found = asked(broker, topic, startingTimestamp=day_one, endingTimestamp=late)
    assert planned(found) == whole
    assert planned(asked(broker, topic, startingTimestamp=late)) == []
    assert planned(asked(broker, topic, endingTimestamp=day_one)) == []
    times = f'{{"{topic}": {{"0": 0, "1": {10**18}}}}}'
    assert planned(asked(broker, topic, startingOffsetsByTimestamp=times)) == whole
