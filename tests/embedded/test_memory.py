"""Memory stays flat: what malloc has given out, and Python's own blocks, over cycles of everything a broker does."""

import gc
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

import penstock
from penstock.errors import StaleReceipt
from penstock.runtime.malloc import malloc_bytes
from penstock.testing import VirtualClock

pytestmark = pytest.mark.skipif(malloc_bytes() is None, reason="needs mallinfo2 of glibc 2.33")

TOPIC, GROUP = "orders", "billing"
# Sparse indexes of the segments that are being written, until those are full; tuples that Python keeps for reuse.
ALLOWED_BYTES, ALLOWED_BLOCKS = 96 * 1024, 4000
BYTES_A_CYCLE, BLOCKS_A_CYCLE = 4, 0.02
# Old segments go after so many cycles.
SWEEP_CYCLES = 100


def take(broker: penstock.Broker) -> list:
    """What is ready; there has to be something."""
    messages = broker.poll(TOPIC, GROUP)
    assert messages
    return messages


def acked(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x", key="k")
    broker.ack(take(broker))


def acked_by_two_groups(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x")
    broker.ack(take(broker))
    broker.ack(broker.poll(TOPIC, "shipping"))


def nacked(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x")
    broker.nack(take(broker), "no")
    broker.clock.advance("2s")
    broker.ack(take(broker))


def extended(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x")
    held = take(broker)
    broker.extend(held, "1m")
    broker.ack(held)


def expired(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x")
    late = take(broker)
    broker.clock.advance("31s")
    broker.ack(take(broker))
    with suppress(StaleReceipt):
        broker.nack(late)


def released(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x")
    broker.poll(TOPIC, GROUP, member="m")
    broker.release(TOPIC, GROUP, "m")
    broker.ack(take(broker))


def delayed_and_fired(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x", delay="1s")
    broker.clock.advance("2s")
    broker.ack(take(broker))


def delayed_and_cancelled(broker: penstock.Broker) -> None:
    made = broker.publish(TOPIC, b"x", delay="1h")
    broker.cancel_delayed(TOPIC, made.partition, made.offset)


def delayed_and_replaced(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x", delay="1h", delay_key="k")


def outlived(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x", ttl="1s")
    broker.clock.advance("2s")
    assert not broker.poll(TOPIC, GROUP)


def urgent(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x", priority="high")
    broker.publish(TOPIC, b"x", priority="low")
    broker.ack(broker.poll(TOPIC, GROUP, limit=1))
    broker.ack(take(broker))


def rejected_and_redriven(broker: penstock.Broker) -> None:
    broker.publish(TOPIC, b"x")
    broker.reject(take(broker), "bad")
    broker.redrive(TOPIC)
    broker.ack(take(broker))


KINDS = (
    acked,
    acked_by_two_groups,
    nacked,
    extended,
    expired,
    released,
    delayed_and_fired,
    delayed_and_cancelled,
    delayed_and_replaced,
    outlived,
    urgent,
    rejected_and_redriven,
)


@pytest.fixture
def broker(tmp_path):
    with penstock.Broker(tmp_path / "data", clock=VirtualClock(), fsync="never") as broker:
        kept = {"segment_size_bytes": 64 * 1024, "retention_bytes": 128 * 1024}
        broker.create_topic(TOPIC, partitions=1, **kept)
        # There are dead letters from now on, and they go as well.
        rejected_and_redriven(broker)
        broker.configure_topic(f"{TOPIC}.dlq", **kept)
        yield broker


def require_flat(
    broker: penstock.Broker, kinds: tuple[Callable[[penstock.Broker], None], ...], cycles: int
) -> None:
    """Run each kind so many times; what is in use then is what was in use after a warm-up."""

    def run(count: int) -> tuple[int, int]:
        for number in range(count):
            for one in kinds:
                one(broker)
            if number % SWEEP_CYCLES == 0:
                broker.retain()
        gc.collect()
        return malloc_bytes(), sys.getallocatedblocks()

    # Bounded memories fill up: the leases that were acked last, for example, are a thousand.
    bytes_before, blocks_before = run(max(cycles // 10, 1100 // len(kinds)))
    bytes_after, blocks_after = run(cycles)
    grown_bytes, grown_blocks = bytes_after - bytes_before, blocks_after - blocks_before
    assert grown_bytes < len(kinds) * (ALLOWED_BYTES + BYTES_A_CYCLE * cycles)
    assert grown_blocks < len(kinds) * (ALLOWED_BLOCKS + BLOCKS_A_CYCLE * cycles)


@pytest.mark.parametrize(
    "kind",
    [acked, *(pytest.param(one, marks=pytest.mark.tier("test")) for one in KINDS[1:])],
    ids=lambda kind: kind.__name__,
)
def test_memory_stays_flat_over_cycles_of(broker, effort, kind):
    require_flat(broker, (kind,), effort(check=800, test=1000, torture=100_000))


@pytest.mark.tier("test")
def test_memory_stays_flat_over_cycles_of_everything_in_turn(broker, effort):
    require_flat(broker, KINDS, effort(check=0, test=300, torture=20_000))
