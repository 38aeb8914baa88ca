"""What can be wrong with the files of a log, by the names in the table of docs/formats/log.md."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.codec import HEAD_BYTES
from penstock.codec.head import pack_head
from penstock.log.checkpoint import EpochStart
from penstock.log.index import read_index
from penstock.log.trim import retain, truncate
from penstock.model import Epoch, LogId, Offset
from penstock.sim import SimDisk, Tree

from .damaged import (
    SEED,
    Sample,
    append_some,
    changed,
    closed,
    flipped,
    opened,
    overwritten,
    running,
    sample_of,
    with_files,
    write_log,
)
from .naive import DIRECTORY, NOW_NS, SECOND_NS

Variants = Iterator[tuple[Sample, Tree]]
DAMAGES: dict[str, Callable[[], Variants]] = {}


def damage(name: str) -> Callable[[Callable[[], Variants]], Callable[[], Variants]]:
    def add(variants: Callable[[], Variants]) -> Callable[[], Variants]:
        DAMAGES[name] = variants
        return variants

    return add


def head_bits(sample: Sample, number: int) -> Variants:
    """Every byte of a head, one bit each; all bits of all bytes are for the long test below."""
    place = sample.places[number]
    for byte in range(HEAD_BYTES):
        yield sample, flipped(sample.tree, place.path, place.position + byte, byte % 8)


def body_bits(sample: Sample, number: int) -> Variants:
    place = sample.places[number]
    for byte in range(HEAD_BYTES, place.head.length):
        yield sample, flipped(sample.tree, place.path, place.position + byte, byte % 8)


@damage("a flipped bit in a batch below the checkpoint")
def _() -> Variants:
    for number in (0, 7, 27):
        yield from head_bits(closed(), number)
        yield from body_bits(closed(), number)


@damage("a flipped bit in a batch behind the checkpoint, with a later one")
def _() -> Variants:
    for number in (18, 25, 27):
        yield from head_bits(running(), number)
        yield from body_bits(running(), number)


@damage("a flipped bit in the last batch of a log that was not closed")
def _() -> Variants:
    yield from head_bits(running(), 29)
    yield from body_bits(running(), 29)


@damage("a flipped bit in the checkpoint")
def _() -> Variants:
    for sample in (closed(), running()):
        path = f"{DIRECTORY}/checkpoint"
        for byte in range(len(sample.tree.files[path])):
            yield sample, flipped(sample.tree, path, byte, byte % 8)


@damage("a flipped bit in an index")
def _() -> Variants:
    sample = closed()
    for path in sample.of("24.index", "24.timeindex"):
        for byte in range(len(sample.tree.files[path])):
            yield sample, flipped(sample.tree, path, byte, byte % 8)


@damage("a closed log cut short inside its last two batches")
def _() -> Variants:
    sample = closed()
    path, size = sample.segments[-1], len(sample.tree.files[sample.segments[-1]])
    for cut in range(sample.places[-2].position, size):
        yield sample, with_files(sample.tree, {path: sample.tree.files[path][:cut]})


@damage("a log that was not closed cut short inside its last two batches")
def _() -> Variants:
    sample = running()
    path, whole = sample.segments[-1], {place.position for place in sample.places}
    for cut in range(sample.places[-2].position, len(sample.tree.files[path])):
        if cut not in whole:
            yield sample, with_files(sample.tree, {path: sample.tree.files[path][:cut]})


def with_tail(tail: bytes) -> Variants:
    for sample in (closed(), running()):
        path = sample.segments[-1]
        yield sample, with_files(sample.tree, {path: sample.tree.files[path] + tail})


@damage("a torn batch with whole ones behind it, in later segments too")
def _() -> Variants:
    """None of them was synced, so no client was told that any is durable."""
    disk = SimDisk()
    log = write_log(disk)
    durable_end = log.end_offset
    append_some(log, 28, 12)
    sample = sample_of(disk, durable_end=durable_end)
    for place in sample.places[28:]:
        yield sample, flipped(sample.tree, place.path, place.position + HEAD_BYTES + 1, 0)
        yield sample, overwritten(sample.tree, place.path, place.position, bytes(place.head.length))


@damage("zeros behind the end, 1 byte to 64 KiB")
def _() -> Variants:
    for size in (1, 7, 8, 111, 112, 113, 511, 512, 4095, 4096, 4097, 65_535, 65_536):
        yield from with_tail(bytes(size))


@damage("garbage behind the end")
def _() -> Variants:
    garbage = random.Random(3)
    for size in (1, 8, 112, 300, 5000):
        yield from with_tail(garbage.randbytes(size))
        yield from with_tail(b"PNSB" * (size // 4 + 1))


@damage("older batches of the same log behind the end")
def _() -> Variants:
    for old in (0, 10, 20):
        place = closed().places[old]
        content = closed().tree.files[place.path]
        yield from with_tail(content[place.position :])
        yield from with_tail(content[place.position : place.end])


@damage("batches that were truncated away, back behind the end")
def _() -> Variants:
    for number in (-1, -2):
        disk = SimDisk(running().tree)
        log, _ = opened(disk)
        path, position, head = running().places[number]
        stale = running().tree.files[path][position:]
        truncate(log, head.base_offset)
        log.begin_epoch(Epoch(log.epoch + 1))
        log.close()
        sample = sample_of(disk, durable_end=head.base_offset)
        yield sample, with_files(sample.tree, {path: sample.tree.files[path] + stale})


INDEXES = ("24.index", "24.timeindex")


@damage("a missing index")
def _() -> Variants:
    for suffixes in (INDEXES[:1], INDEXES[1:], INDEXES):
        yield closed(), with_files(closed().tree, dict.fromkeys(closed().of(*suffixes)))


@damage("an empty index")
def _() -> Variants:
    for path in closed().of(*INDEXES):
        yield closed(), with_files(closed().tree, {path: b""})


@damage("an index that is too long")
def _() -> Variants:
    for path in closed().of(*INDEXES):
        for more in (bytes(1), bytes(16), closed().tree.files[path]):
            yield closed(), with_files(closed().tree, {path: closed().tree.files[path] + more})


def forged_index(sample: Sample, base: int, **changes: object) -> Tree:
    """An index with a right checksum and wrong contents."""
    paths = [f"{DIRECTORY}/{base:020d}{suffix}" for suffix in (".index", ".timeindex")]
    by_offset, by_time = (sample.tree.files[path] for path in paths)
    index = read_index(by_offset, by_time, interval_bytes=150, seed=SEED)
    assert index is not None
    for name, value in changes.items():
        setattr(index, name, value)
    return with_files(sample.tree, dict(zip(paths, index.to_files(SEED), strict=True)))


def moved(numbers: object, by: int) -> object:
    assert hasattr(numbers, "typecode")
    return type(numbers)(numbers.typecode, [number + by for number in numbers])


@damage("an index of an older state of the segment")
def _() -> Variants:
    """As if the segment had been truncated and written anew: other batches at other places."""
    for base in (24, 48):
        sample = closed()
        paths = [f"{DIRECTORY}/{base:020d}{suffix}" for suffix in (".index", ".timeindex")]
        donor = [f"{DIRECTORY}/{7:020d}{suffix}" for suffix in (".index", ".timeindex")]
        index = read_index(
            *(sample.tree.files[path] for path in donor), interval_bytes=1, seed=SEED
        )
        assert index is not None
        index.base_offset = base
        yield sample, with_files(sample.tree, dict(zip(paths, index.to_files(SEED), strict=True)))


@damage("an index ahead of its segment")
def _() -> Variants:
    yield closed(), forged_index(closed(), 24, size=5000, next_offset=500)


@damage("an index that points into the middle of a batch")
def _() -> Variants:
    paths = closed().of(*INDEXES)
    index = read_index(*(closed().tree.files[path] for path in paths), interval_bytes=1, seed=SEED)
    assert index is not None
    yield closed(), forged_index(closed(), 24, positions=moved(index.positions, 8))
    yield closed(), forged_index(closed(), 24, times=moved(index.times, -SECOND_NS))


@damage("a copy of a segment under a number behind the end")
def _() -> Variants:
    for base in (55, 70):
        copy = closed().tree.files[f"{DIRECTORY}/{15:020d}.log"]
        yield closed(), with_files(closed().tree, {f"{DIRECTORY}/{base:020d}.log": copy})


@damage("a copy of a segment under a number in the middle")
def _() -> Variants:
    copy = closed().tree.files[f"{DIRECTORY}/{15:020d}.log"]
    for base in (3, 10):
        yield closed(), with_files(closed().tree, {f"{DIRECTORY}/{base:020d}.log": copy})


@damage("a copy of a segment in place of another one")
def _() -> Variants:
    for source, target in ((15, 24), (24, 15), (0, 31), (39, 7)):
        copy = closed().tree.files[f"{DIRECTORY}/{source:020d}.log"]
        yield closed(), with_files(closed().tree, {f"{DIRECTORY}/{target:020d}.log": copy})


@damage("two segments of the log under each other's names")
def _() -> Variants:
    for one, other in ((7, 15), (0, 39), (24, 31)):
        paths = [f"{DIRECTORY}/{base:020d}.log" for base in (one, other)]
        contents = [closed().tree.files[path] for path in reversed(paths)]
        yield closed(), with_files(closed().tree, dict(zip(paths, contents, strict=True)))


@damage("a missing segment below the checkpoint")
def _() -> Variants:
    for base in (7, 24, 39):
        yield closed(), changed(closed().tree, **{f"{base:020d}.log": None})


@damage("a missing segment behind the checkpoint")
def _() -> Variants:
    for base in (39, 48):
        yield running(), changed(running().tree, **{f"{base:020d}.log": None})
    # The one batch that is left behind the gap has to bear witness itself.
    path, first = running().segments[-1], running().places[-2]
    last = running().tree.files[path][: first.head.length]
    yield running(), with_files(running().tree, {path: last, f"{DIRECTORY}/{48:020d}.log": None})


@damage("the first segment missing, or the one that the checkpoint speaks of")
def _() -> Variants:
    for sample, base in ((closed(), 0), (closed(), 48), (running(), 31)):
        yield sample, changed(sample.tree, **{f"{base:020d}.log": None})


@damage("a segment that goes on with the batches of the next one")
def _() -> Variants:
    sample = closed()
    for one, following in ((7, 15), (24, 31)):
        paths = [f"{DIRECTORY}/{base:020d}.log" for base in (one, following)]
        both = b"".join(sample.tree.files[path] for path in paths)
        yield sample, with_files(sample.tree, {paths[0]: both})


def other_log() -> Tree:
    disk = SimDisk()
    write_log(disk, log_id=LogId(0xBAD), directory=DIRECTORY).close()
    return disk.tree()


@damage("a segment of another log below the checkpoint")
def _() -> Variants:
    for base in (7, 24):
        path = f"{DIRECTORY}/{base:020d}.log"
        yield closed(), with_files(closed().tree, {path: other_log().files[path]})


@damage("an older copy of a segment below the checkpoint")
def _() -> Variants:
    for base in (7, 24):
        path = f"{DIRECTORY}/{base:020d}.log"
        ends = [place.position for place in closed().places if place.path == path]
        for end in ends:
            yield closed(), with_files(closed().tree, {path: closed().tree.files[path][:end]})


@damage("an older copy of the segment that the checkpoint speaks of")
def _() -> Variants:
    path = closed().segments[-1]
    for end in (place.position for place in closed().places if place.path == path):
        yield closed(), with_files(closed().tree, {path: closed().tree.files[path][:end]})


@damage("an older checkpoint")
def _() -> Variants:
    path = f"{DIRECTORY}/checkpoint"
    yield closed(), with_files(closed().tree, {path: running().tree.files[path]})


@damage("a checkpoint from before a retention")
def _() -> Variants:
    disk = SimDisk()
    log = write_log(disk)
    old = disk.tree().files[f"{DIRECTORY}/checkpoint"]
    log.config = replace(log.config, retention_segments=4)
    retain(log, now_ns=NOW_NS, keep_from=Offset(1 << 40))
    log.close()
    sample = sample_of(disk, durable_end=log.end_offset)
    yield sample, changed(sample.tree, checkpoint=old)


@damage("a checkpoint that knows other epochs")
def _() -> Variants:
    for epochs in ([(5, 0)], [(1, 0), (2, 20)], [(0, 0), (1, 18)]):
        pairs = tuple(EpochStart(Epoch(epoch), Offset(offset)) for epoch, offset in epochs)
        forged = replace(closed().checkpoint, epochs=pairs)
        yield closed(), changed(closed().tree, checkpoint=forged.to_bytes(SEED))


@damage("a checkpoint that points into the middle of a batch")
def _() -> Variants:
    for by in (-8, -100):
        found = running().checkpoint
        forged = replace(found, position=found.position + by)
        yield running(), changed(running().tree, checkpoint=forged.to_bytes(SEED))


def of_later_version(sample: Sample, number: int) -> Variants:
    path, position, head = sample.places[number]
    for changes in ({"version": 3}, {"encoding": 2}, {"attributes": head.attributes | 1 << 15}):
        later = pack_head(head._replace(**changes), seed=SEED)
        yield sample, overwritten(sample.tree, path, position, later)


@damage("a batch of a later version below the checkpoint")
def _() -> Variants:
    for number in (3, 12, 27):
        yield from of_later_version(closed(), number)


@damage("a batch of a later version behind the checkpoint")
def _() -> Variants:
    for number in (20, 28, 29):
        yield from of_later_version(running(), number)


@damage("a checkpoint that is lost")
def _() -> Variants:
    for sample in (closed(), running()):
        yield sample, changed(sample.tree, checkpoint=None)


@damage("a hole of zeros in the middle")
def _() -> Variants:
    sample = closed()
    for size in (8, 64, 160, 400):
        for base, position in ((7, 0), (7, 150), (31, 100)):
            path = f"{DIRECTORY}/{base:020d}.log"
            yield sample, overwritten(sample.tree, path, position, bytes(size))


@damage("a batch written to the wrong place")
def _() -> Variants:
    sample = closed()
    for source, target in ((20, 3), (3, 20), (25, 24)):
        from_path, position, head = sample.places[source]
        batch = sample.tree.files[from_path][position : position + head.length]
        to = sample.places[target]
        if to.head.length == head.length:
            yield sample, overwritten(sample.tree, to.path, to.position, batch)


@damage("files that do not belong there")
def _() -> Variants:
    strange = {
        "notes.txt": b"hello",
        "00000000000000000007.log.bak": b"x" * 50,
        "7.log": closed().tree.files[f"{DIRECTORY}/{7:020d}.log"],
        "99999999999999999999.log": b"x" * 50,
    }
    for name, content in strange.items():
        yield closed(), changed(closed().tree, **{name: content})
