"""A log as a list, and the few words that tests of logs share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.codec import Compression, Head, batches_in, decode_messages, encode_messages
from penstock.config import LogConfig
from penstock.log import AppendResult, Log, Recovery, open_log
from penstock.model import LogId, Message
from penstock.sim import Call, Fault, Misbehaviour, SimDisk, Tree

DIRECTORY = "orders/messages"
LOG_ID = LogId(0x5EED)
NOW_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
# An index entry for nearly every batch, so that every lookup has a choice.
SMALL = LogConfig(segment_size_bytes=1000, index_interval_bytes=150, segment_age_ms=-1)


def open_small(disk: SimDisk, config: LogConfig = SMALL) -> tuple[Log, Recovery]:
    return open_log(disk, DIRECTORY, log_id=LOG_ID, config=config)


def new_log(config: LogConfig = SMALL, disk: SimDisk | None = None) -> Log:
    return open_small(disk or SimDisk(), config)[0]


@contextmanager
def no_room_for_checkpoints(disk: SimDisk) -> Iterator[None]:
    """The one that is there stays, however much is written and synced behind it."""
    disk.inject(
        Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part="checkpoint", times=1 << 30)
    )
    yield
    disk.faults.clear()


def put(
    log: Log,
    messages: Sequence[Message] | int,
    *,
    now_ns: int = NOW_NS,
    compression: Compression = Compression.NONE,
) -> AppendResult:
    """Append one batch: these messages, or so many with their own offset as value."""
    if isinstance(messages, int):
        messages = [Message(b"%d" % (log.end_offset + number)) for number in range(messages)]
    encoded = encode_messages(messages, compression=compression)
    return log.append(encoded, now_ns=now_ns)


def keyed(*pairs: tuple[bytes | None, bytes | None]) -> list[Message]:
    return [Message(value, key) for key, value in pairs]


def batches(
    log: Log, start: int | None = None, *, bytes_max: int = 1 << 20
) -> Iterator[tuple[Head, memoryview]]:
    """Every batch from an offset on, as a reader meets them."""
    offset = log.start_offset if start is None else start
    while offset < log.end_offset:
        run = log.read(offset, bytes_max=bytes_max)
        assert run.base_offset <= offset < run.next_offset
        for head, data in batches_in(run.data, seed=log.seed):
            assert head.base_offset == offset or head.base_offset == run.base_offset
            yield head, data
            offset = head.next_offset
        assert offset == run.next_offset


def messages_in(found: Iterable[tuple[Head, memoryview]]) -> list[Message]:
    return [message for head, data in found for message in decode_messages(data, head)]


def messages(log: Log, start: int | None = None) -> list[Message]:
    return messages_in(batches(log, start))


def values(log: Log, start: int | None = None) -> list[bytes | None]:
    return [message.value for message in messages(log, start)]


def offsets(log: Log, start: int | None = None) -> list[int]:
    return [message.offset for message in messages(log, start)]


def changed(disk: SimDisk, files: Mapping[str, bytes | None]) -> SimDisk:
    """A disk with the same files, but these: other bytes, or none."""
    tree = disk.tree()
    found = {path: data for path, data in {**tree.files, **files}.items() if data is not None}
    return SimDisk(Tree(found, tree.directories))


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    return data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :]


def path_of(name: str) -> str:
    return f"{DIRECTORY}/{name}"


def check_shape(log: Log) -> None:
    """What holds for every log at any time, whatever was done to it."""
    expected = log.start_offset
    starts = {segment.base_offset for segment in log.segments}
    for head, _ in batches(log):
        assert head.base_offset == expected, "ranges are adjacent"
        starts.discard(head.base_offset)
        reign = [start.epoch for start in log.epochs if start.offset <= head.base_offset]
        assert head.epoch == reign[-1], f"epoch of {head.base_offset}"
        expected = head.next_offset
    assert expected == log.end_offset
    assert starts <= {log.end_offset}, "every segment starts with a batch of its own"
    assert log.start_offset <= log.compacted_to <= log.end_offset
    assert log.start_offset <= log.settled_to <= log.segments[-1].base_offset
    assert log.durable_end <= log.end_offset
