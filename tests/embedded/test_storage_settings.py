"""When segments are closed, how many are kept and how often that is looked at, seen in the files of a directory."""

import pytest

import penstock
from penstock.errors import InvalidConfig
from penstock.testing import VirtualClock


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def broker(tmp_path, clock):
    with penstock.Broker(tmp_path, clock=clock) as broker:
        yield broker


def segments(path, topic: str = "t") -> list[int]:
    """The first offsets of the segments of a topic's first partition."""
    files = path.glob(f"topics/default/{topic}.*/partition-0/messages/*.log")
    return sorted(int(file.stem) for file in files)


def publish(broker, count: int, topic: str = "t", key: str | None = None) -> None:
    for _ in range(count):
        broker.publish(topic, b"x", key=key)


def test_a_segment_is_closed_by_count_and_a_change_holds_at_once(broker, tmp_path):
    broker.create_topic("t", partitions=1, segment_messages_max=3)
    publish(broker, 7)
    assert segments(tmp_path) == [0, 3, 6]
    broker.configure_topic("t", segment_messages_max=-1)
    publish(broker, 7)
    assert segments(tmp_path) == [0, 3, 6]
    broker.configure_topic("t", segment_messages_max=1)
    publish(broker, 2)
    assert segments(tmp_path) == [0, 3, 6, 14, 15]


def test_a_segment_is_closed_by_age(broker, tmp_path, clock):
    broker.create_topic("t", partitions=1, segment_age_ms=60_000)
    publish(broker, 2)
    clock.advance("59s")
    publish(broker, 1)
    assert segments(tmp_path) == [0]
    clock.advance("2s")
    publish(broker, 2)
    assert segments(tmp_path) == [0, 3]
    broker.configure_topic("t", segment_age_ms=1000)
    clock.advance("2s")
    publish(broker, 1)
    assert segments(tmp_path) == [0, 3, 5]


def test_so_many_segments_are_kept_and_never_fewer(broker, tmp_path, clock):
    broker.create_topic("t", partitions=1, segment_messages_max=1, retention_segments=4)
    publish(broker, 9)
    assert segments(tmp_path) == [*range(9)]
    clock.advance("2h")
    assert segments(tmp_path) == [5, 6, 7, 8]
    broker.configure_topic("t", retention_segments=-1, retention_hours=1, retention_segments_min=3)
    clock.advance("3h")
    assert segments(tmp_path)[:2] == [7, 8]
    assert len(segments(tmp_path)) == 3
    assert broker.describe("t")[0].earliest == 7


def test_each_topic_is_swept_as_often_as_it_says(broker, tmp_path, clock):
    for topic, every_ms in (("often", 1000), ("seldom", 7_200_000)):
        settings = {"segment_messages_max": 1, "retention_segments": 1}
        broker.create_topic(topic, partitions=1, retention_check_ms=every_ms, **settings)
        publish(broker, 4, topic)
    clock.advance("1s")
    assert segments(tmp_path, "often") == [3]
    broker.configure_topic("often", retention_check_ms=3_600_000)
    clock.advance("119m")
    assert segments(tmp_path, "seldom") == [0, 1, 2, 3]
    clock.advance("1m")
    assert segments(tmp_path, "seldom") == [3]
    # From the change on, not from the next time that it would have been looked at.
    publish(broker, 2, "seldom")
    broker.configure_topic("seldom", retention_check_ms=2000)
    clock.advance("2s")
    assert segments(tmp_path, "seldom") == [5]


def test_a_topic_is_compacted_as_often_as_it_says(broker, tmp_path, clock):
    settings = {"cleanup": "compact", "segment_messages_max": 2, "retention_check_ms": 600_000}
    broker.create_topic("t", partitions=1, compaction_check_ms=7_200_000, **settings)
    publish(broker, 6, key="k")

    def size() -> int:
        return sum(
            file.stat().st_size for file in tmp_path.glob("topics/default/t.*/*/messages/*.log")
        )

    before = size()
    clock.advance("119m")
    assert size() == before
    clock.advance("1m")
    assert size() < before
    assert [one.offset for one in broker.read("t", 0)] == [3, 4, 5]


def test_a_sweep_of_one_topic_leaves_the_others_alone(broker, tmp_path):
    for topic in ("mine", "other"):
        broker.create_topic(topic, partitions=1, segment_messages_max=1, retention_segments=1)
        publish(broker, 3, topic)
    assert broker.retain("mine").keys() == {"mine"}
    assert (segments(tmp_path, "mine"), segments(tmp_path, "other")) == ([2], [0, 1, 2])
    with pytest.raises(penstock.errors.NotFound):
        broker.retain("none")
    assert broker.retain().keys() == {"mine", "other"}
    assert segments(tmp_path, "other") == [2]


def test_a_queue_takes_the_same_settings(tmp_path, clock):
    settings = {"segment_messages_max": 2, "retention_segments": 2, "retention_check_ms": 1000}
    with penstock.open(tmp_path, clock=clock, fsync="always", **settings) as queue:
        for _ in range(6):
            queue.put(b"x")
        assert segments(tmp_path, "queue") == [0, 2, 4]
        clock.advance("2s")
        # What nobody has finished stays.
        assert segments(tmp_path, "queue") == [0, 2, 4]
        queue.get_many()
        clock.advance("2s")
        assert segments(tmp_path, "queue") == [2, 4]
    with penstock.open(tmp_path, clock=clock, retention_check_ms=60_000, retention_segments=1):
        clock.advance("59s")
        assert segments(tmp_path, "queue") == [2, 4]
        clock.advance("2s")
        assert segments(tmp_path, "queue") == [4]


@pytest.mark.parametrize(
    ("settings", "setting", "expected"),
    [
        ({"segment_age_ms": 0}, "segment_age_ms", "above 0, or -1 for off"),
        ({"segment_messages_max": -2}, "segment_messages_max", "above 0, or -1 for off"),
        ({"retention_segments": 0}, "retention_segments", "above 0, or -1 for off"),
        ({"retention_segments_min": 0}, "retention_segments_min", ">= 1"),
        ({"retention_segments": 2, "retention_segments_min": 3}, "retention_segments_min", "<= 2"),
        ({"retention_check_ms": 99}, "retention_check_ms", "in 100..604800000"),
        ({"compaction_check_ms": 1 << 40}, "compaction_check_ms", "in 100..604800000"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_may_be(
    broker, tmp_path, settings, setting, expected
):
    broker.create_topic("t", partitions=1)
    for call in (
        lambda: broker.create_topic("other", **settings),
        lambda: broker.configure_topic("t", **settings),
        lambda: penstock.open(tmp_path / "queue", **settings),
    ):
        with pytest.raises(InvalidConfig) as wrong:
            call()
        assert wrong.value.fields["setting"] == setting
        assert f"{setting} must be {expected}, got " in str(wrong.value)
    assert broker.topics() == ["t"]
