"""Requests that wait, by the secret that they came with: each is told when that secret ends.

A secret ends when its key is revoked, when its time is over, and when the grace of a rotation is. What waits is a
stream, a long poll, a read at the end of a partition, a redrive at a rate.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, field

from ..api.keys import Credential
from ..broker.keys import key_ended
from ..runtime.threads import ThreadDriver

_S_NS = 1_000_000_000
# A timer that comes too early would find a secret that is still good, and no other timer is set for it.
_MARGIN_S = 0.001
# Far beyond any session, and below what event loops can wait for.
_WAIT_S_MAX = 86_400.0

End = Callable[[], None]


@dataclass(slots=True)
class _Waiting:
    """The requests of one secret, and the timer that looks when its time should be over."""

    ends: set[End] = field(default_factory=set)
    timer: TimerHandle | None = None


class KeyEnds:
    """Belongs to one event loop. `look` is called after a key was rotated or revoked, and every second."""

    def __init__(self, driver: ThreadDriver, loop: AbstractEventLoop) -> None:
        self._driver, self._loop = driver, loop
        self._waiting: dict[Credential, _Waiting] = {}

    def watch(self, credential: Credential | None, end: End) -> None:
        """Have `end` called, once, when a secret ends before `unwatch`. Unauthenticated: it has ended already."""
        self.require(credential)
        if credential is None:
            return
        waiting = self._waiting.get(credential)
        if waiting is None:
            waiting = self._waiting[credential] = _Waiting()
            self._set_timer(waiting, self._driver.left_ns(credential))
        waiting.ends.add(end)

    def require(self, credential: Credential | None) -> None:
        """Unauthenticated, if a secret that was good has ended since."""
        if credential is not None and self._driver.left_ns(credential) == 0:
            raise key_ended()

    def unwatch(self, credential: Credential | None, end: End) -> None:
        waiting = None if credential is None else self._waiting.get(credential)
        if credential is None or waiting is None:
            return
        waiting.ends.discard(end)
        if not waiting.ends:
            self._forget(credential, waiting)

    def look(self) -> None:
        """Tell the requests of all secrets that have ended."""
        for credential, waiting in [*self._waiting.items()]:
            left_ns = self._driver.left_ns(credential)
            if left_ns != 0:
                self._set_timer(waiting, left_ns)
                continue
            self._forget(credential, waiting)
            for end in [*waiting.ends]:
                end()

    def _set_timer(self, waiting: _Waiting, left_ns: int | None) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
            waiting.timer = None
        if left_ns is not None:
            wait_s = min(left_ns / _S_NS + _MARGIN_S, _WAIT_S_MAX)
            waiting.timer = self._loop.call_later(wait_s, self.look)

    def _forget(self, credential: Credential, waiting: _Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._waiting.pop(credential, None)
