"""Clients in a forked process: their connections and threads belong to the parent.

Both processes would send over one connection and take each other's replies, so what a client holds is told of a fork,
and refuses from then on.
"""

import os
from typing import Protocol
from weakref import WeakSet


class LeftToParent(Protocol):
    """What is of use in the process alone that made it."""

    def leave_to_parent(self, reason: str) -> None:
        """Let go of what the parent has, without a word to the server, and refuse with this reason."""


_MADE: "WeakSet[LeftToParent]" = WeakSet()


def note_made(one: LeftToParent) -> None:
    """Have an object told if this process is forked."""
    _MADE.add(one)


def _after_fork() -> None:
    parent = os.getppid()
    reason = f"the client was made by process {parent}, before a fork; make one in this process"
    for one in list(_MADE):
        one.leave_to_parent(reason)


os.register_at_fork(after_in_child=_after_fork)
