"""Members of assigned groups."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.members import CommitAsMember
from ..changes import Handler
from ..partition import Now
from .groups import require_offsets

if TYPE_CHECKING:
    from ..node import Node


def commit(node: "Node", command: CommitAsMember, now: Now) -> bool:
    require_offsets(node, command.offsets)
    return node.assigned.commit(command, now)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    CommitAsMember: commit,
}
