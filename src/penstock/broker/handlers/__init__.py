"""Handlers: what `Node.execute` calls, one file for each family of commands.

A handler is given the node, the command and the time; it reads, has partitions record what it decides, and returns the
reply or raises. It is called by nothing else, and asks nothing about rights: `execute` has asked.
"""

from collections.abc import Mapping
from typing import Any

from ...api.command import Command
from ..partition.changes import Handler
from . import (
    answers,
    classic,
    commits,
    consume,
    dead_letters,
    delays,
    fetch,
    groups,
    health,
    journeys,
    keys,
    large_publishes,
    members,
    publish,
    queries,
    schedules,
    schemas,
    spans,
    topics,
    transaction_answers,
    transactions,
)

HANDLERS: Mapping[type[Command[Any]], Handler] = {
    **answers.HANDLERS,
    **classic.HANDLERS,
    **commits.HANDLERS,
    **consume.HANDLERS,
    **dead_letters.HANDLERS,
    **delays.HANDLERS,
    **fetch.HANDLERS,
    **groups.HANDLERS,
    **health.HANDLERS,
    **journeys.HANDLERS,
    **keys.HANDLERS,
    **members.HANDLERS,
    **publish.HANDLERS,
    **queries.HANDLERS,
    **schedules.HANDLERS,
    **schemas.HANDLERS,
    **spans.HANDLERS,
    **topics.HANDLERS,
    **transaction_answers.HANDLERS,
    **transactions.HANDLERS,
}
LARGE: Mapping[type[Command[Any]], Handler] = large_publishes.HANDLERS
"""Of commands that may be large: they are carried out in slices, if a driver begins them as walks."""
