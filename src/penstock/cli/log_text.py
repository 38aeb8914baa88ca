"""The output of the `log` commands: bytes, times and counts as text and as fields of JSON."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .output import text_of

if TYPE_CHECKING:
    from ..codec import Head
    from ..log.doctor.repair import Change
    from ..log.doctor.stats import LogStats
    from ..log.doctor.verify import Problem, VerifyReport
    from ..model import Message

Fields = dict[str, object]

_SECOND_NS = 1_000_000_000


def json_line(fields: Fields) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": "))


def time_text(time_ns: int) -> str:
    """Returns RFC 3339 with nanoseconds, or the number if the calendar of Python ends before it."""
    seconds, rest_ns = divmod(time_ns, _SECOND_NS)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ns)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns:09d}Z"


def size_text(size: int) -> str:
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def offsets_text(first: int | None, following: int | None) -> str:
    if first is None or following is None or following <= first:
        return ""
    last = following - 1
    return f"offset {first}" if last == first else f"offsets {first} to {last}"


def bytes_text(raw: bytes | None) -> str:
    value = text_of(raw)
    if isinstance(value, dict):
        return f"base64:{value['base64']}"
    # A message may hold control characters of a terminal.
    is_plain = isinstance(value, str) and value.isprintable()
    return json.dumps(value, ensure_ascii=not is_plain)


def message_fields(message: "Message", head: "Head") -> Fields:
    return {
        "offset": message.offset,
        "timestamp": time_text(message.timestamp),
        "append_time": time_text(head.append_time),
        "epoch": head.epoch,
        "priority": message.priority,
        "key": text_of(message.key),
        "value": text_of(message.value),
        "headers": [[name, text_of(value)] for name, value in message.headers],
        "expires_at": message.expires_at and time_text(message.expires_at),
        "idempotency_key": text_of(message.idempotency_key),
        "schema_id": message.schema_id,
    }


def message_text(message: "Message", head: "Head") -> str:
    words = [f"{message.offset:>10}", time_text(head.append_time), f"epoch {head.epoch}"]
    if message.key is not None:
        words.append(f"key {bytes_text(message.key)}")
    words.append(f"value {bytes_text(message.value)}")
    words += [f"{json.dumps(name)}={bytes_text(value)}" for name, value in message.headers]
    return "  ".join(words)


def _encoding(head: "Head") -> str:
    return "kafka" if head.is_verbatim else "columnar"


def head_fields(head: "Head") -> Fields:
    marks = head.marks
    return {
        "base_offset": head.base_offset,
        "last_offset": head.last_offset,
        "messages": head.message_count,
        "length": head.length,
        "encoding": _encoding(head),
        "compression": head.compression.name.lower(),
        "stored_size": head.stored_size,
        "body_size": head.body_size,
        "epoch": head.epoch,
        "unsynced": head.unsynced,
        "append_time": time_text(head.append_time),
        "base_timestamp": time_text(head.base_timestamp),
        "max_timestamp": time_text(head.max_timestamp),
        "control": marks.control,
        "producer_id": marks.producer_id,
        "producer_epoch": marks.producer_epoch,
        "first_sequence": marks.first_sequence,
        "transaction_id": marks.transaction_id,
        "origin": marks.origin.name.lower(),
        "origin_source": marks.origin_source,
        "origin_sequence": marks.origin_sequence,
    }


def head_text(head: "Head") -> str:
    content = f"{head.message_count} messages" if head.message_count else "nothing left"
    return "  ".join(
        [
            f"{head.base_offset:>10} to {head.last_offset}",
            time_text(head.append_time),
            f"epoch {head.epoch}",
            content,
            f"{head.length} bytes {_encoding(head)} {head.compression.name.lower()}",
        ]
    )


def problem_fields(problem: "Problem", path: str) -> Fields:
    return {
        "severity": problem.severity.value,
        "kind": problem.kind.value,
        "file": path,
        "position": problem.position,
        "size": problem.size,
        "first_offset": problem.first_offset,
        "next_offset": problem.next_offset,
        "reason": problem.reason,
    }


def problem_text(problem: "Problem", path: str) -> str:
    place = f" at byte {problem.position}" if problem.position else ""
    size = f" ({size_text(problem.size)})" if problem.size else ""
    offsets = offsets_text(problem.first_offset, problem.next_offset)
    about = f"; {offsets}" if offsets else ""
    return f"  {problem.severity.value:7} {path}{place}{size}: {problem.reason}{about}"


def report_fields(report: "VerifyReport") -> Fields:
    from ..log.doctor.verify import Severity

    return {
        "is_good": report.is_good,
        "log_id": None if report.log_id is None else f"{report.log_id:#018x}",
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "segments": report.segments,
        "bytes": report.size,
        "batches": report.batches,
        "messages": report.messages,
        "lost_offsets": report.lost_offsets,
        "problems": {severity.value: report.problems[severity] for severity in Severity},
    }


def report_text(report: "VerifyReport") -> str:
    if report.log_id is None:
        return "  not checked: nothing says whose log this is (see --log-id)"
    found = [f"{count} {severity.value}" for severity, count in report.problems.items()]
    offsets = offsets_text(report.start_offset, report.end_offset) or "no offsets"
    parts = [
        "  good" if report.is_good else "  NOT GOOD",
        f"{offsets}, {report.messages} messages in {report.batches} batches",
        f"{size_text(report.size)} in {report.segments} segments",
        ", ".join(found) or "no problems",
    ]
    if report.lost_offsets:
        parts.append(f"{report.lost_offsets} offsets lost")
    return "; ".join(parts)


def change_fields(change: "Change", path: str, kept_as: str) -> Fields:
    return {
        "deed": change.deed.value,
        "file": path,
        "position": change.position,
        "size": change.size,
        "kept_as": kept_as,
        "first_offset": change.first_offset,
        "next_offset": change.next_offset,
        "reason": change.reason,
    }


def change_text(change: "Change", path: str, kept_as: str) -> str:
    words = [f"  {change.deed.value:12} {path}"]
    if change.size:
        words.append(f"at byte {change.position}, {size_text(change.size)}")
    offsets = offsets_text(change.first_offset, change.next_offset)
    if offsets:
        words.append(f"lost: {offsets}")
    if kept_as:
        words.append(f"now {kept_as}")
    return ", ".join(words) + (f" ({change.reason})" if change.reason else "")


def stats_fields(stats: "LogStats") -> Fields:
    first, last = stats.append_times
    return {
        "log_id": f"{stats.log_id:#018x}",
        "start_offset": stats.start_offset,
        "end_offset": stats.end_offset,
        "checkpoint_offset": stats.checkpoint_offset,
        "messages": stats.total("messages"),
        "batches": stats.total("batches"),
        "bytes": stats.total("size"),
        "unreadable_bytes": stats.total("unreadable_bytes"),
        "messages_per_batch": round(stats.messages_per_batch, 2),
        "compression_ratio": round(stats.compression_ratio, 2),
        "first_append_time": None if first is None else time_text(first),
        "last_append_time": None if last is None else time_text(last),
        "epochs": [[one.epoch, one.offset] for one in stats.epochs],
        "segments": [
            {
                "base_offset": one.base_offset,
                "next_offset": one.next_offset,
                "bytes": one.size,
                "batches": one.batches,
                "messages": one.messages,
                "unreadable_bytes": one.unreadable_bytes,
                "index": one.index.value,
            }
            for one in stats.segments
        ],
    }


def stats_text(stats: "LogStats") -> str:
    first, last = stats.append_times
    appended = "never"
    if first is not None and last is not None:
        appended = f"{time_text(first)} to {time_text(last)}"
    rows = [
        ("log id", f"{stats.log_id:#018x}"),
        ("offsets", f"{stats.start_offset} up to {stats.end_offset}"),
        ("checkpoint", "none" if stats.checkpoint_offset is None else str(stats.checkpoint_offset)),
        ("messages", f"{stats.total('messages')} in {stats.total('batches')} batches"),
        ("a batch", f"{stats.messages_per_batch:.1f} messages"),
        ("size", f"{size_text(stats.total('size'))} in {len(stats.segments)} segments"),
        ("compression", f"{stats.compression_ratio:.2f}"),
        ("appended", appended),
        ("epochs", _epochs_text([(one.epoch, one.offset) for one in stats.epochs])),
        ("indexes", _indexes_text(stats)),
    ]
    if unreadable := stats.total("unreadable_bytes"):
        rows.append(("UNREADABLE", f"{size_text(unreadable)}; see penstock log verify"))
    return "\n".join(f"  {name:12} {value}" for name, value in rows)


def _epochs_text(epochs: Sequence[tuple[int, int]]) -> str:
    shown = [f"{epoch} from offset {offset}" for epoch, offset in epochs[-5:]]
    hidden = len(epochs) - len(shown)
    return ", ".join([f"{hidden} older", *shown] if hidden else shown) or "none"


def _indexes_text(stats: "LogStats") -> str:
    states = [segment.index.value for segment in stats.segments]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "none"
