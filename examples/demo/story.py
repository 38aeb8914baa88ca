"""The acts of the demo: each does one thing to a log and returns what it found."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.codec import (
    Compression,
    decode_messages,
    encode,
    read_head,
    seed_of,
    stamp,
)
from penstock.log import Log, Recovery, open_log
from penstock.log.doctor.verify import ReadProgress, VerifyReport, verify_steps
from penstock.log.lookup import offset_at
from penstock.model import Message, Offset
from penstock.runtime import RealDisk

from . import ROOT
from .writer import BATCH_MESSAGES, DIRECTORY, LOG, LOG_ID, STORAGE, columns_from

WRITING_S = 2.0
READ_BYTES = 1 << 20
ENCODINGS = 200


@dataclass(frozen=True, slots=True)
class Encoded:
    """The size of a batch, alone and compressed."""

    messages: int
    content_bytes: int
    batch_bytes: int
    zstd_bytes: int
    encode_ns_a_message: int

    @property
    def bytes_a_message(self) -> float:
        return self.batch_bytes / self.messages


@dataclass(frozen=True, slots=True)
class Ack:
    """A batch that the writer was told is durable."""

    base_offset: int
    next_offset: int
    body_checksum: int
    append_time: int


@dataclass(frozen=True, slots=True)
class WriterResult:
    """The batches that the writer was told are durable before it was killed."""

    acks: list[Ack]
    elapsed_s: float
    torn_bytes: int

    @property
    def messages(self) -> int:
        return sum(ack.next_offset - ack.base_offset for ack in self.acks)


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The result of opening the log."""

    elapsed_ms: float
    log_bytes: int
    scanned_bytes: int
    cut_bytes: int
    cut_reason: str


@dataclass(frozen=True, slots=True)
class ProofResult:
    """How many promised batches were found, and how many are missing."""

    acknowledged: int
    present: int
    unacknowledged: int


@dataclass(frozen=True, slots=True)
class SeekResult:
    """One message found by its offset, and the offset found for its time."""

    offset: int
    message: Message
    by_offset_us: float
    by_time_us: float
    offset_at_its_time: int


def encode_some() -> Encoded:
    columns = columns_from(0, time.time_ns())
    assert columns.keys is not None
    encoded = encode(columns)
    start_ns = time.perf_counter_ns()
    for _ in range(ENCODINGS):
        encode(columns)
    elapsed_ns = time.perf_counter_ns() - start_ns
    content = [part for column in (columns.keys, columns.values) for part in column if part]
    return Encoded(
        messages=BATCH_MESSAGES,
        content_bytes=sum(map(len, content)),
        batch_bytes=encoded.head.length,
        zstd_bytes=encode(columns, compression=Compression.ZSTD).head.length,
        encode_ns_a_message=elapsed_ns // ENCODINGS // BATCH_MESSAGES,
    )


def write_and_kill(root: Path) -> WriterResult:
    """Let another process write for a while, and kill it without a warning."""
    with writing(root) as writer:
        assert writer.stdout is not None
        acks = [ack_of(writer.stdout.readline())]
        start_s = time.perf_counter()
        while time.perf_counter() - start_s < WRITING_S:
            acks.append(ack_of(writer.stdout.readline()))
        elapsed_s = time.perf_counter() - start_s
        writer.send_signal(signal.SIGKILL)
        # What is still in the pipe was promised as well. A line that the kill cut in two was not.
        acks += [ack_of(line) for line in writer.stdout if line.endswith(b"\n")]
    return WriterResult(acks, elapsed_s, tear(root))


@contextmanager
def writing(root: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "examples.demo.writer", str(root)]
    # A session of its own, so that Ctrl-C only reaches the demo, which then stops it.
    process = subprocess.Popen(  # noqa: S603 - our own module
        command, stdout=subprocess.PIPE, start_new_session=True, cwd=ROOT
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ack_of(line: bytes) -> Ack:
    if not line:
        raise ChildProcessError("the writer ended by itself")
    return Ack(*map(int, line.split()))


def tear(root: Path) -> int:
    """Add half a batch, as a power cut in the middle of a write would; a kill alone seldom does."""
    newest = max((root / DIRECTORY).glob("*.log"))
    encoded = encode(columns_from(0, time.time_ns()))
    head = stamp(
        encoded.head, base_offset=0, epoch=0, append_time=time.time_ns(), seed=seed_of(LOG_ID)
    )
    half = b"".join((head, *encoded.body))[: encoded.head.length // 2]
    with newest.open("ab") as file:
        file.write(half)
    return len(half)


@contextmanager
def recovered(root: Path) -> Iterator[tuple[RealDisk, Log, RecoveryResult]]:
    """The log as the next process opens it."""
    with RealDisk(root, STORAGE) as disk:
        start_ns = time.perf_counter_ns()
        log, recovery = open_log(disk, DIRECTORY, log_id=LOG_ID, config=LOG)
        elapsed_ms = (time.perf_counter_ns() - start_ns) / 1_000_000
        yield disk, log, recovered_of(elapsed_ms, log, recovery)
        log.close()


def recovered_of(elapsed_ms: float, log: Log, recovery: Recovery) -> RecoveryResult:
    return RecoveryResult(
        round(elapsed_ms, 1),
        log.size,
        recovery.scanned_bytes,
        recovery.cut_bytes,
        recovery.cut_reason,
    )


def prove(log: Log, acks: list[Ack]) -> ProofResult:
    """Read everything, with checksums, and look for every batch that was acknowledged."""
    found: dict[int, int] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        run = log.read(offset, bytes_max=1)
        head = read_head(run.data, seed=log.seed)
        found[head.base_offset] = head.body_checksum
        offset = run.next_offset
    present = sum(found.pop(ack.base_offset, None) == ack.body_checksum for ack in acks)
    return ProofResult(len(acks), present, len(found))


def seek(log: Log, ack: Ack) -> SeekResult:
    """Find a message in the middle of a batch, and the first offset of the time at which it was appended."""
    offset = (ack.base_offset + ack.next_offset) // 2
    log.read(log.start_offset, bytes_max=READ_BYTES)  # So that the next read has to search.
    start_ns = time.perf_counter_ns()
    run = log.read(offset, bytes_max=1)
    found_ns = time.perf_counter_ns()
    by_time = offset_at(log, ack.append_time)
    end_ns = time.perf_counter_ns()
    head = read_head(run.data, seed=log.seed)
    message = decode_messages(run.data, head)[offset - head.base_offset]
    return SeekResult(
        offset, message, (found_ns - start_ns) / 1000, (end_ns - found_ns) / 1000, Offset(by_time)
    )


def verify_log(disk: RealDisk) -> VerifyReport:
    steps = verify_steps(disk, DIRECTORY)
    while True:
        try:
            step = next(steps)
        except StopIteration as finished:
            report: VerifyReport = finished.value
            return report
        assert isinstance(step, ReadProgress) or step.reason
