"""What the audit log says of the commands of administrators, whichever way they came."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..api.answers import TakeBack
from ..api.command import Command
from ..api.commits import ResetCommitName
from ..api.dead_letters import DiscardDeadLetters, RedriveDeadLetters
from ..api.groups import CloseGroup, ResetGroup
from ..api.keys import CreateKey, RevokeKey, RotateKey
from ..api.schedules import ChangeSchedule, CreateSchedule, DeleteSchedule, RunSchedule
from ..api.schemas import DeleteSubject, DeleteVersion, RegisterSchema, SetCompatibility, SetMode
from ..api.topics import AddPartitions, ConfigureTopic, CreateTopic, DeleteTopic, SweepTopics
from ..api.transactions import ForceAbort


class AuditNote(NamedTuple):
    """A line of the audit log: written before the command if `is_first`, or after it, when the reply is known."""

    text: Callable[[Any], str]
    is_first: bool = False


def is_audited(kind: type[Command[Any]]) -> bool:
    return kind in _NOTES


def audited(command: Command[Any]) -> AuditNote | None:
    """What is noted of a command of an administrator; None of any other."""
    note = _NOTES.get(type(command))
    return None if note is None else note(command)


def _note(text: Callable[[Any, Any], str], *, is_first: bool = False) -> Any:
    return lambda command: AuditNote(lambda reply: text(command, reply), is_first)


def _redriven(command: RedriveDeadLetters) -> AuditNote | None:
    if command.is_dry_run:
        return None
    where = command.target.value
    return AuditNote(lambda reply: f"{command.topic}: {reply.redriven} dead letters to the {where}")


def _discarded(command: DiscardDeadLetters) -> AuditNote | None:
    if command.is_dry_run:
        return None
    return AuditNote(lambda reply: f"{command.topic}: {reply.discarded} dead letters discarded")


def _start_text(start: Any) -> str:
    return f"{start.kind.value} {start.value}" if start.value else str(start.kind.value)


def _whose(command: SetCompatibility | SetMode) -> str:
    return command.subject or "all subjects"


def _for_good(command: DeleteVersion | DeleteSubject) -> str:
    return " permanently" if command.permanent else ""


_NOTES: Mapping[type[Command[Any]], Callable[[Any], AuditNote | None]] = {
    CreateKey: _note(
        lambda one, _: f"key {one.key_id} ({one.name}, {one.role.value}) created", is_first=True
    ),
    RotateKey: _note(lambda one, _: f"key {one.key_id} rotated", is_first=True),
    RevokeKey: _note(lambda one, _: f"key {one.key_id} revoked", is_first=True),
    CreateTopic: _note(lambda one, _: one.name),
    ConfigureTopic: _note(lambda one, _: one.name),
    DeleteTopic: _note(lambda one, _: one.name),
    AddPartitions: _note(lambda one, before: f"{one.name}: {before} to {one.total} partitions"),
    SweepTopics: _note(lambda one, _: one.name or "all topics"),
    CloseGroup: _note(lambda one, _: f"group {one.group} deleted"),
    ResetGroup: _note(lambda one, _: f"group {one.group} to {_start_text(one.to)}"),
    TakeBack: _note(lambda one, _: f"{', '.join(sorted(one.topics()))}: messages taken back"),
    RedriveDeadLetters: _redriven,
    DiscardDeadLetters: _discarded,
    CreateSchedule: _note(lambda one, _: f"{one.topic}: schedule {one.key} created"),
    ChangeSchedule: _note(
        lambda one, now: f"{one.topic}: schedule {one.key} changed, version {now.version}"
    ),
    DeleteSchedule: _note(lambda one, _: f"{one.topic}: schedule {one.key} deleted"),
    RunSchedule: _note(lambda one, at: f"{one.topic}: schedule {one.key} run, {at.offset}"),
    ForceAbort: _note(lambda one, _: f"transaction {one.transaction_id} aborted"),
    ResetCommitName: _note(
        lambda one, was: f"commit name {one.name} forgotten, its last sequence was {was.sequence}"
    ),
    RegisterSchema: _note(
        lambda one, made: f"{one.subject}: version {made.version}, id {made.schema.schema_id}"
    ),
    SetCompatibility: _note(
        lambda one, _: (
            f"{_whose(one)}: compatibility {one.level.value if one.level else 'as usual'}"
        )
    ),
    SetMode: _note(
        lambda one, _: f"{_whose(one)}: mode {one.mode.value if one.mode else 'as usual'}"
    ),
    DeleteVersion: _note(
        lambda one, number: f"{one.subject}: version {number} deleted{_for_good(one)}"
    ),
    DeleteSubject: _note(lambda one, _: f"{one.subject} deleted{_for_good(one)}"),
}
