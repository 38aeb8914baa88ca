"""What is to be told of a node besides its figures: what its start found and did, and what is damaged now."""

from ..api.health import EventKind, Findings, RecoveryEvent
from .catalogue import Catalogue


def findings_of(node: Catalogue) -> Findings:
    """What there is to tell. What the start found of a topic that is deleted since is of no use to anyone."""
    found = [one for one in node.recovery if not one.topic or _is_there(node, one)]
    faulty = [one for one in found if one.kind is EventKind.PARTITION_FAULTY]
    recovery = [one for one in found if one.is_of_start]
    return Findings(recovery, faulty, node.damage.newest(), node.damage.batches.total())


def _is_there(node: Catalogue, event: RecoveryEvent) -> bool:
    """Whether the topic of an event is there; of damage: the one that has it, and not a later one of that name."""
    topic = node.open.get(event.topic)
    if topic is None:
        return False
    return not event.is_damage or event.path.startswith(f"{topic.facts.directory}/")
