"""Golden files: what was written once is written the same today, and can be read for ever."""

import pytest

from penstock.codec import Compression, Marks, Origin, decode_columns, decode_messages, verify
from penstock.codec.head import VERSION

from . import twin
from .golden_cases import CASES, GOLDEN, NOON, path_of
from .strategies import messages_of

FILES = [
    (name, version) for name, case in CASES.items() for version in range(case.since, VERSION + 1)
]


@pytest.mark.parametrize(("name", "version"), FILES)
def test_a_golden_file_is_read(name, version):
    case, batch = CASES[name], path_of(name, version).read_bytes()
    head = verify(batch, seed=case.seed)
    assert head.version == version
    assert len(batch) == head.length
    assert list(decode_messages(batch, head)) == case.expected
    assert messages_of(decode_columns(batch, head)) == case.expected
    if head.compression is Compression.NONE and not head.encoding:
        assert twin.decode(batch) == case.expected


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_rewritable])
def test_todays_encoder_writes_the_golden_file_byte_for_byte(name):
    assert CASES[name].write() == path_of(name).read_bytes()


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_the_compressed_files_are_compressed(name):
    head = verify(path_of(name).read_bytes())
    assert head.compression is Compression[name.upper()]


def test_the_stamped_file_keeps_everything_that_was_stamped():
    head = verify(path_of("stamped").read_bytes(), seed=CASES["stamped"].seed)
    assert (head.base_offset, head.last_offset, head.epoch) == (1_000_000, 1_000_003, 3)
    assert (head.append_time, head.unsynced, head.durable_end) == (NOON + 500, 20, 999_980)
    assert head.marks == Marks(True, 7, 2, 100, 55, Origin.OUTBOX, 3, 12)


def test_the_compacted_file_keeps_its_range():
    head = verify(path_of("compacted").read_bytes())
    assert (head.base_offset, head.last_offset, head.first_sequence) == (0, 11, 40)


def test_every_golden_file_is_read_by_a_test():
    found = {(path.stem, int(path.parent.name)) for path in GOLDEN.glob("*/*.bin")}
    assert found == set(FILES)
