"""What a tracing system is told of sampled messages."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.spans import SpanPage, TailSpans
from .. import span_tail
from ..partition import Now
from ..partition.changes import Handler
from ..walks import Slices

if TYPE_CHECKING:
    from ..node import Node


def tail(node: "Node", command: TailSpans, _now: Now) -> Slices[SpanPage]:
    return (yield from span_tail.tail(node, command))


HANDLERS: Mapping[type[Command[Any]], Handler] = {TailSpans: tail}
