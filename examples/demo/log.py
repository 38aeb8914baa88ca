"""The first part of the demo: a log is written, killed, recovered and read."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from .scene import Scene, Stage, waiting

if TYPE_CHECKING:
    from penstock.log.doctor.verify import VerifyReport

    from .story import Encoded, ProofResult, RecoveryResult, SeekResult, WriterResult


def log_scenes(stage: Stage) -> Iterator[Scene]:
    from . import story as story

    root = stage.directory / "log"
    yield of_encoding(story.encode_some())
    with waiting("another process writes, with an fsync before each answer", stage):
        written = story.write_and_kill(root)
    yield of_writing(written)
    with story.recovered(root) as (disk, log, recovered):
        yield of_recovery(recovered)
        yield of_proof(story.prove(log, written.acks))
        yield of_seeking(story.seek(log, written.acks[len(written.acks) // 2]))
        yield of_verifying(story.verify_log(disk))
    stage.leave("the files of the log", f"penstock log stats {root}")


def of_encoding(found: "Encoded") -> Scene:
    lines = [
        ("keys and values", f"{found.content_bytes:,} bytes in {found.messages} messages"),
        ("as a batch", f"{found.batch_bytes:,} bytes, {found.bytes_a_message:.1f} a message"),
        ("with zstd", f"{found.zstd_bytes:,} bytes"),
        ("encoding", f"{found.encode_ns_a_message:,} ns a message"),
    ]
    facts = {**asdict(found), "bytes_a_message": round(found.bytes_a_message, 1)}
    return Scene("encoding", "A batch of messages", lines, facts)


def of_writing(found: "WriterResult") -> Scene:
    per_s = round(found.messages / found.elapsed_s)
    lines = [
        (
            "acknowledged",
            f"{found.messages:,} messages in {len(found.acks):,} batches, all fsynced",
        ),
        ("rate", f"{per_s:,} messages/s, {len(found.acks) / found.elapsed_s:,.0f} batches/s"),
        ("then", "SIGKILL, in the middle of it"),
        ("and", f"{found.torn_bytes:,} bytes of half a batch, as a power cut leaves them"),
    ]
    facts: dict[str, object] = {
        "messages": found.messages,
        "batches": len(found.acks),
        "elapsed_s": round(found.elapsed_s, 3),
        "messages_per_s": per_s,
        "torn_bytes": found.torn_bytes,
    }
    return Scene("writing", "Written by a process that was killed", lines, facts)


def of_recovery(found: "RecoveryResult") -> Scene:
    lines = [
        ("opened in", f"{found.elapsed_ms:.1f} ms"),
        (
            "scanned",
            f"{found.scanned_bytes:,} of {found.log_bytes:,} bytes, from the checkpoint on",
        ),
        ("cut", f"{found.cut_bytes:,} bytes ({found.cut_reason}), kept in a file beside it"),
    ]
    return Scene("recovery", "Opened again", lines, asdict(found), is_good=found.cut_bytes > 0)


def of_proof(found: "ProofResult") -> Scene:
    lost = found.acknowledged - found.present
    lines = [
        ("acknowledged", f"{found.acknowledged:,} batches"),
        ("there, and equal", f"{found.present:,}"),
        ("lost", f"{lost:,}"),
        ("there, never acknowledged", f"{found.unacknowledged:,}, which is allowed"),
    ]
    return Scene("proof", "Nothing promised is lost", lines, asdict(found), is_good=lost == 0)


def of_seeking(found: "SeekResult") -> Scene:
    value = (found.message.value or b"").decode()
    lines = [
        (f"offset {found.offset:,}", f"{value} in {found.by_offset_us:.0f} us"),
        (
            "the time of that append",
            f"first offset {found.offset_at_its_time:,} in {found.by_time_us:.0f} us",
        ),
    ]
    facts: dict[str, object] = {
        "offset": found.offset,
        "value": value,
        "by_offset_us": round(found.by_offset_us, 1),
        "by_time_us": round(found.by_time_us, 1),
        "offset_at_its_time": found.offset_at_its_time,
    }
    is_good = found.offset_at_its_time <= found.offset == found.message.offset
    return Scene("seeking", "Found by offset and by time", lines, facts, is_good)


def of_verifying(found: "VerifyReport") -> Scene:
    problems = {severity.value: count for severity, count in found.problems.items()}
    lines = [
        ("checked", f"{found.messages:,} messages in {found.batches:,} batches, every byte"),
        ("segments", f"{found.segments:,}, {found.size:,} bytes"),
        ("verdict", "good" if found.is_good else f"problems: {problems}"),
    ]
    facts: dict[str, object] = {
        "messages": found.messages,
        "batches": found.batches,
        "segments": found.segments,
        "bytes": found.size,
        "problems": problems,
    }
    return Scene("verify", "Verified", lines, facts, found.is_good)
