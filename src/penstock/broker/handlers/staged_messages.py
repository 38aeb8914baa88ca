"""Messages that a command stages, for a transaction or for a named commit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...api.commits import StageNamed
from ...api.publish import Publish
from ...api.transactions import Placed, Stage, Staged
from ...codec import Encoded, Marks
from ...codec.head import with_transaction
from ...errors import Refused
from ...transactions.records import Place
from ..partition import Now, Partition
from ..partition.staged_batches import batches_to_stage
from ..validation import require_valid

if TYPE_CHECKING:
    from ..node import Node

SEQUENCE_MAX = (1 << 31) - 1


def check_sequence(command: Stage | StageNamed) -> None:
    first = command.sequence
    if first is None:
        return
    is_one = isinstance(command, Stage) and len(command.messages) + len(command.delayed) == 1
    if not 0 <= first <= SEQUENCE_MAX or (command.partition is None and not is_one):
        raise Refused(
            f"a sequence is 0 to {SEQUENCE_MAX}; it counts in the partition that the command names, or is that of "
            "its only message"
        )


def stage_messages(
    node: "Node",
    command: Stage | StageNamed,
    session: tuple[int, int],
    enrol: Callable[[Sequence[Partition]], int],
    now: Now,
) -> Sequence[Staged]:
    """Stage messages of a producer, by id and epoch, in the order of the command.

    `enrol` has the partitions take part, and returns the number of the transaction.
    """
    topic, first = node.topic(command.topic), command.sequence
    contents = command.messages or [one.message for one in command.delayed]
    if node.bindings:
        require_valid(node, Publish(command.topic, contents, command.partition))
    node.guard.admit(contents, now)

    def marks_in(partition: Partition) -> Marks:
        sequence = _next_sequence(partition, *session) if first is None else first
        return Marks(producer_id=session[0], producer_epoch=session[1], first_sequence=sequence)

    may_begin_anywhere = isinstance(command, Stage) and command.may_begin_anywhere
    if first is not None and command.partition is None and contents and contents[0].key is None:
        # A repeat goes where the first one went.
        command = replace(command, partition=session[0] % len(topic.partitions))
    batches = batches_to_stage((topic.partitions, topic.router), command, marks_in, now)
    for partition, _, encoded in batches:
        node.staging_quota.require_room(partition, encoded, may_begin_anywhere=may_begin_anywhere)
    number = enrol([partition for partition, _, _ in batches])
    found: dict[int, Staged] = {}
    for partition, indexes, encoded in batches:
        first_of = stage_encoded(
            partition, encoded, number, now, may_begin_anywhere=may_begin_anywhere
        )
        for place, index in enumerate(indexes):
            found[index] = first_of._replace(sequence=first_of.sequence + place)
    return [found[index] for index in range(len(contents))]


def _next_sequence(partition: Partition, producer_id: int, epoch: int) -> int:
    known = partition.machine.staging_producers.by_id.get(producer_id)
    return known.next_sequence if known is not None and known.epoch == epoch else 0


def stage_encoded(
    partition: Partition,
    encoded: Encoded,
    number: int,
    now: Now,
    *,
    may_begin_anywhere: bool = False,
) -> Staged:
    """Stage a batch in the transaction of this number."""
    head = with_transaction(encoded.head, number)
    numbered = Encoded(head, encoded.body, has_idempotency_keys=False)
    is_repeat = partition.stage(numbered, now, may_begin_anywhere=may_begin_anywhere) is None
    return Staged(partition.number, head.first_sequence, is_repeat)


def placed(node: "Node", places: Iterable[Place]) -> Iterator[Placed]:
    """Where messages are, by the names of topics; those of one that is gone have none."""
    for topic_id, partition, offset, count in places:
        facts = node.topics.by_id.get(topic_id)
        yield Placed("" if facts is None else facts.name, partition, offset, count)
