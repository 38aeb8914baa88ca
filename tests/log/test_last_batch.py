"""The last batch is kept in memory for waiting consumers, and reads are the same as from the file."""

import pytest

from penstock.codec import Columns, Encoded, encode, encode_messages
from penstock.errors import NoSpace, OffsetOutOfRange
from penstock.log import Log
from penstock.log.segment import Segment
from penstock.log.trim import truncate
from penstock.model import Epoch, Message
from penstock.sim import Call, Fault, Misbehaviour, SimDisk

from .naive import NOW_NS, new_log, offsets, put, values


def put_value(log: Log, value: bytes) -> int:
    encoded = encode(Columns(values=[value], timestamps=NOW_NS))
    return log.append(encoded, now_ns=NOW_NS).base_offset


@pytest.mark.parametrize("size", [0, 1, 7, 100, 3960, 3968, 3976, 5000, 70_000])
def test_it_is_the_same_from_memory_and_from_the_file(size):
    log = new_log()
    for _ in range(3):
        offset = put_value(log, b"v" * size)
        kept = log.read(offset, bytes_max=1)
        log.forget_hint()
        assert log.read(offset, bytes_max=1) == kept
    assert values(log) == [b"v" * size] * 3


def test_whoever_waits_for_it_needs_no_file_and_goes_on_from_there(monkeypatch):
    log = new_log()
    put_value(log, b"first")
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "file", None)
        run = log.read(0, bytes_max=1 << 20)
        log.forget_hint()
        with pytest.raises(AttributeError):
            log.read(0, bytes_max=1 << 20)
    assert (run.base_offset, run.next_offset) == (0, 1)
    put_value(log, b"again")
    log.read(1, bytes_max=1)
    put_value(log, b"second")
    put_value(log, b"third")
    # Where that one ended is known: nothing has to be looked for.
    monkeypatch.setattr(log, "place_of_batch", None)
    assert log.read(2, bytes_max=1 << 20).next_offset == 4


def test_what_somebody_may_still_write_to_is_not_kept():
    log = new_log()
    encoded = encode(Columns(values=[b"value"], timestamps=NOW_NS))
    body = bytearray(encoded.body[0])
    log.append(Encoded(encoded.head, [body], has_idempotency_keys=False), now_ns=NOW_NS)
    body[:] = bytes(len(body))
    assert values(log) == [b"value"]


def test_what_was_cut_off_is_not_kept():
    log = new_log()
    put_value(log, b"stays")
    put_value(log, b"goes")
    truncate(log, 1)
    log.begin_epoch(Epoch(log.epoch + 1))
    with pytest.raises(OffsetOutOfRange):
        log.read(2, bytes_max=1)
    encoded = encode_messages([Message(b"another"), Message(b"and one")])
    log.append(encoded, now_ns=NOW_NS)
    assert values(log) == [b"stays", b"another", b"and one"]
    assert log.read(2, bytes_max=1).base_offset == 1


def test_what_found_no_room_is_not_kept():
    disk = SimDisk()
    log = new_log(disk=disk)
    put_value(log, b"stays")
    disk.inject(Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE))
    with pytest.raises(NoSpace):
        put_value(log, b"goes")
    assert values(log) == [b"stays"]
    assert log.read(0, bytes_max=1).next_offset == 1
    put(log, 1)
    assert offsets(log) == [0, 1]
