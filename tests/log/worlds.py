"""Small logs that remember what they promised, for pulling the plug on."""

from dataclasses import dataclass, field

from penstock.codec import Columns, batches_in, decode_messages, encode
from penstock.config import LogConfig
from penstock.log import Log, Recovery, open_log
from penstock.log.opening import CheckpointState
from penstock.model import LogId
from penstock.sim import SimDisk

DIRECTORY = "orders/messages"
LOG_ID = LogId(0x5EED)
NOW_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
# Two or three small batches a segment, an index entry for each, a checkpoint now and then.
TINY = LogConfig(
    segment_size_bytes=400, index_interval_bytes=100, checkpoint_bytes=500, retention_hours=1
)


@dataclass(slots=True)
class Acked:
    """Everything below this offset was promised to be there."""

    end: int


@dataclass(slots=True)
class MayStartAt:
    """From here on a log that starts at this offset is fine."""

    offset: int


@dataclass(slots=True)
class World:
    """What was written, so that what is read can be judged."""

    values: list[bytes] = field(default_factory=list)
    # Numbers of the keys; a message without a key has one of its own, so nothing replaces it.
    keys: list[int] = field(default_factory=list)
    states_judged: int = 0

    def append(
        self, log: Log, count: int, *, now_ns: int = NOW_NS, keys: int = 0, filler: bytes = b""
    ) -> None:
        """Append a batch; with `keys` its messages take turns with so many keys, `filler` makes them long."""
        numbers = range(len(self.values), len(self.values) + count)
        fresh = [b"message-%d" % number + filler for number in numbers]
        names = [b"key-%d" % (number % keys) for number in numbers] if keys else None
        encoded = encode(Columns(values=fresh, keys=names, timestamps=now_ns))
        self.values.extend(fresh)
        self.keys.extend(number % keys if keys else number + 1_000_000 for number in numbers)
        log.append(encoded, now_ns=now_ns)

    def forget(self, end: int) -> None:
        """Messages from `end` on never came to be."""
        del self.values[end:], self.keys[end:]


def open_tiny(disk: SimDisk) -> tuple[Log, Recovery]:
    return open_log(disk, DIRECTORY, log_id=LOG_ID, config=TINY)


def acked_sync(disk: SimDisk, log: Log, *, with_checkpoint: bool = False) -> None:
    log.sync(with_checkpoint=with_checkpoint)
    disk.mark(Acked(log.end_offset))


def read_values(log: Log, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """Every message of a log, in order."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.start_offset if start is None else start
    while offset < log.end_offset:
        run = log.read(offset, bytes_max=1 << 20)
        for head, batch in batches_in(run.data, seed=log.seed):
            found.extend((one.offset, one.value) for one in decode_messages(batch, head))
        offset = run.next_offset
    return found


def promised_end(marks: tuple[object, ...]) -> int:
    return max((mark.end for mark in marks if isinstance(mark, Acked)), default=0)


def allowed_starts(marks: tuple[object, ...]) -> set[int]:
    return {0} | {mark.offset for mark in marks if isinstance(mark, MayStartAt)}


def judge(world: World, disk: SimDisk, marks: tuple[object, ...]) -> None:
    """Nothing promised is lost, nothing is invented, offsets are dense, and recovering again changes nothing."""
    log, recovery = open_tiny(disk)
    assert recovery.checkpoint is not CheckpointState.DAMAGED, (
        "a crash may not leave half a checkpoint"
    )
    assert log.start_offset in allowed_starts(marks), f"starts at {log.start_offset}"
    assert log.end_offset >= promised_end(marks), f"ends at {log.end_offset}"
    found = read_values(log)
    expected = list(enumerate(world.values))[log.start_offset : log.end_offset]
    assert found == sorted(set(found) & set(expected)), "only what was written, in order"
    missing = {offset for offset, _ in set(expected) - set(found)}
    last = {key: offset for offset, key in enumerate(world.keys[: log.end_offset])}
    assert all(last[world.keys[offset]] > offset for offset in missing), (
        "only older ones of a key go"
    )
    world.states_judged += 1
    if world.states_judged % 4 == 0:  # Three more opens cost more than all the rest.
        is_settled(log, disk)


def is_settled(log: Log, disk: SimDisk) -> None:
    """Opening it again finds the same and nothing to do; it takes new messages and keeps them."""
    again, second = open_tiny(disk)
    assert (again.end_offset, again.start_offset) == (log.end_offset, log.start_offset)
    assert (second.scanned_bytes, second.cut_at) == (0, None), (
        "recovery is finished when it returns"
    )
    encoded = encode(Columns(values=[b"after the crash"]))
    appended = again.append(encoded, now_ns=NOW_NS + SECOND_NS)
    again.sync()
    last, _ = open_tiny(disk)
    assert read_values(last, appended.base_offset) == [(appended.base_offset, b"after the crash")]
