"""A command of each kind that changes something, by its class; `SCENE` has made what it is about."""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.api import (
    answers,
    commits,
    consume,
    dead_letters,
    delays,
    groups,
    keys,
    members,
    publish,
    queries,
    schedules,
    schemas,
    topics,
    transactions,
)
from penstock.api.answers import Kind, OffsetKind
from penstock.api.command import Command
from penstock.api.groups import PartitionOffset
from penstock.api.principals import Role
from penstock.api.publish import Delayed
from penstock.api.schemas import Level
from penstock.api.start import EARLIEST
from penstock.api.transaction_answers import StageAnswers, StagedOffset, StageOffsets
from penstock.api.wire import CALLS
from penstock.model import Message, TopicPartition

from .scene import GROUP, KEY, MEMBER, PARTITIONS, SCHEMA, WRITER, Scene

Kinds = type[Command[Any]]
CHANGING: list[Kinds] = [
    call.kind for call in CALLS.values() if not (call.kind.is_query or call.kind.is_volatile)
]
_ALL = dead_letters.Selection(is_all=True)
_MESSAGES = [Message(b"a"), Message(b"b", key=b"k"), Message(b"c", idempotency_key=b"once")]


def _both(topic: str, offset: int = 1) -> tuple[PartitionOffset, ...]:
    return tuple(PartitionOffset(topic, partition, offset) for partition in range(PARTITIONS))


def _of_member(scene: Scene, kind: Callable[..., Any], *more: Any) -> Any:
    return kind(scene.joined()[0], MEMBER, *more)


def _committed_as_member(scene: Scene) -> Command[Any]:
    group, topic = scene.joined()
    return members.CommitAsMember(group, MEMBER, _both(topic))


def _released(scene: Scene) -> Command[Any]:
    group, topic = scene.joined()
    partitions = tuple(TopicPartition(topic, number) for number in range(PARTITIONS))
    return members.ReleasePartitions(group, MEMBER, partitions)


def _joined(scene: Scene) -> Command[Any]:
    topic = scene.filled()
    return members.JoinGroup(
        scene.name(), MEMBER, (topic,), session_ms=60_000, mode=groups.Mode.RELAXED
    )


def _committed(scene: Scene) -> Command[Any]:
    staging = scene.complete()
    return commits.CommitStagings(staging.name, 1, WRITER, staging.refs)


def _staged_batch(scene: Scene) -> Command[Any]:
    topic = scene.topic()
    return transactions.StageBatch(topic, 1, scene.batch(scene.session()))


def _init(scene: Scene) -> Command[Any]:
    name = scene.name()
    return transactions.InitProducer(name, former=scene.run(transactions.InitProducer(name)))


def _staged_named(scene: Scene) -> Command[Any]:
    staging = scene.opened()
    return commits.StageNamed(staging.id, staging.topic, _MESSAGES[:2], 1, 0)


def _staged_named_batch(scene: Scene) -> Command[Any]:
    staging = scene.opened()
    return commits.StageNamedBatch(staging.id, staging.topic, 1, 0, scene.batch())


EXAMPLES: Mapping[Kinds, Callable[[Scene], Command[Any]]] = {
    answers.Answer: lambda scene: answers.Answer(scene.leased().answers(Kind.ACK)),
    answers.TakeBack: lambda scene: answers.TakeBack(scene.leased().answers(Kind.REJECT)),
    answers.AnswerOffset: lambda scene: answers.AnswerOffset(
        OffsetKind.ACK_UP_TO, scene.leased().topic, 1, GROUP, 1
    ),
    answers.ReleaseMember: lambda scene: answers.ReleaseMember(scene.leased().topic, GROUP, MEMBER),
    commits.OpenStaging: lambda scene: commits.OpenStaging(scene.name(), 1, WRITER),
    commits.StageNamed: _staged_named,
    commits.StageNamedBatch: _staged_named_batch,
    commits.StageNamedAnswers: lambda scene: commits.StageNamedAnswers(
        scene.opened().id, scene.leased().answers(Kind.REJECT)
    ),
    commits.CommitStagings: _committed,
    commits.DropStagings: lambda scene: commits.DropStagings([scene.complete().id]),
    commits.ResetCommitName: lambda scene: commits.ResetCommitName(scene.complete().name),
    consume.Poll: lambda scene: consume.Poll(scene.filled(), GROUP, MEMBER, 10),
    dead_letters.DiscardDeadLetters: lambda scene: dead_letters.DiscardDeadLetters(
        scene.dead(), _ALL
    ),
    dead_letters.RedriveDeadLetters: lambda scene: dead_letters.RedriveDeadLetters(
        scene.dead(), _ALL
    ),
    delays.CancelDelayed: lambda scene: delays.CancelDelayed(scene.delayed(), b"k"),
    delays.RescheduleDelayed: lambda scene: delays.RescheduleDelayed(
        scene.delayed(), b"k", scene.due_ns + 1_000_000_000
    ),
    groups.OpenGroup: lambda scene: groups.OpenGroup(GROUP, (scene.filled(),)),
    groups.CloseGroup: lambda scene: groups.CloseGroup(topic=scene.grouped(), group=GROUP),
    groups.ResetGroup: lambda scene: groups.ResetGroup(
        GROUP, topic=scene.leased().topic, to=EARLIEST, is_forced=True
    ),
    groups.Commit: lambda scene: groups.Commit(
        scene.name(), _both(scene.filled()), opens_group=True
    ),
    keys.CreateKey: lambda scene: keys.CreateKey(scene.name(), Role.READONLY),
    keys.RotateKey: lambda scene: keys.RotateKey(scene.key(), 1000),
    keys.RevokeKey: lambda scene: keys.RevokeKey(scene.key()),
    members.JoinGroup: _joined,
    members.LeaveGroup: lambda scene: _of_member(scene, members.LeaveGroup),
    members.ReleasePartitions: _released,
    members.CommitAsMember: _committed_as_member,
    members.PollMember: lambda scene: _of_member(scene, members.PollMember, 10),
    publish.Publish: lambda scene: publish.Publish(scene.topic(), _MESSAGES),
    publish.PublishEach: lambda scene: publish.PublishEach(scene.topic(), _MESSAGES),
    publish.PublishValues: lambda scene: publish.PublishValues(scene.topic(), [b"a", b"b"]),
    publish.PublishBatch: lambda scene: publish.PublishBatch(scene.topic(), 1, scene.batch()),
    publish.Schedule: lambda scene: publish.Schedule(
        scene.topic(), [Delayed(Message(b"a"), scene.due_ns, b"k"), Delayed(Message(b"b"), 1)]
    ),
    publish.ScheduleValues: lambda scene: publish.ScheduleValues(
        scene.topic(), [b"a", b"b"], scene.due_ns
    ),
    queries.KeepQueryStart: lambda scene: scene.start(),
    queries.ForgetQueryStart: lambda scene: queries.ForgetQueryStart(scene.query()),
    schedules.CreateSchedule: lambda scene: schedules.CreateSchedule(
        scene.topic(), KEY, every_ms=3_600_000, value=b"again"
    ),
    schedules.ChangeSchedule: lambda scene: schedules.ChangeSchedule(
        scene.recurring(), KEY, is_paused=True
    ),
    schedules.DeleteSchedule: lambda scene: schedules.DeleteSchedule(scene.recurring(), KEY),
    schedules.RunSchedule: lambda scene: schedules.RunSchedule(scene.recurring(), KEY),
    schemas.RegisterSchema: lambda scene: schemas.RegisterSchema(scene.name(), SCHEMA),
    schemas.DeleteVersion: lambda scene: schemas.DeleteVersion(scene.subject(), 1),
    schemas.DeleteSubject: lambda scene: schemas.DeleteSubject(scene.subject()),
    schemas.SetCompatibility: lambda scene: schemas.SetCompatibility(scene.subject(), Level.FULL),
    schemas.SetMode: lambda scene: schemas.SetMode(scene.subject(), schemas.Mode.READONLY),
    topics.CreateTopic: lambda scene: topics.CreateTopic(scene.name(), PARTITIONS),
    topics.ConfigureTopic: lambda scene: topics.ConfigureTopic(
        scene.filled(), {"retention_hours": 1}
    ),
    topics.AddPartitions: lambda scene: topics.AddPartitions(scene.filled(), PARTITIONS + 1),
    topics.DeleteTopic: lambda scene: topics.DeleteTopic(scene.filled()),
    topics.SweepTopics: lambda scene: topics.SweepTopics(scene.filled()),
    topics.TrimPartition: lambda scene: topics.TrimPartition(scene.filled(), 1, 1),
    transactions.InitProducer: _init,
    transactions.BeginTransaction: lambda scene: transactions.BeginTransaction(*scene.session()),
    transactions.Stage: lambda scene: transactions.Stage(
        *scene.session(), scene.topic(), _MESSAGES[:1], 1, 0
    ),
    transactions.StageBatch: _staged_batch,
    StageAnswers: lambda scene: StageAnswers(*scene.session(), scene.leased().answers(Kind.REJECT)),
    StageOffsets: lambda scene: StageOffsets(
        *scene.session(), scene.name(), [StagedOffset(*place) for place in _both(scene.filled())]
    ),
    transactions.EndTransaction: lambda scene: transactions.EndTransaction(
        *scene.staged()[0], is_commit=True
    ),
    transactions.ForceAbort: lambda scene: transactions.ForceAbort(scene.transaction()),
}
