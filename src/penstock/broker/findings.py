"""What is to be told of a node besides its figures: what its start found and did, and what is damaged now."""

from ..api.health import EventKind, Findings, RecoveryEvent
from .catalogue import Catalogue
from .walks import Slices


def findings_of(node: Catalogue) -> Slices[Findings]:
    """What there is to tell. What the start found of a topic that is deleted since is of no use to anyone."""
    faulty: list[RecoveryEvent] = []
    recovery: list[RecoveryEvent] = []
    for event in [*node.recovery]:
        if not event.topic or _is_there(node, event):
            if event.kind is EventKind.PARTITION_FAULTY:
                faulty.append(event)
            if event.is_of_start:
                recovery.append(event)
        yield 1
    return Findings(recovery, faulty, node.damage.newest(), node.damage.batches.total())


def _is_there(node: Catalogue, event: RecoveryEvent) -> bool:
    """Whether the topic of an event is there; of damage: the one that has it, and not a later one of that name."""
    topic = node.open.get(event.topic)
    if topic is None:
        return False
    return not event.is_damage or event.path.startswith(f"{topic.facts.directory}/")
