"""A simulated network between nodes: delays, one-way cuts, connections that break or hang half open.

Bytes of one connection arrive in their order, those of different ones in any. A cut loses what is sent that way; the
connection is then half open, until each side gives it up after its own time.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from .schedule import MS, Schedule

_DELAY_MS_MAX = 8
_GIVE_UP_MS = 400


class Peer(Protocol):
    """One end of a connection."""

    def heard(self, connection: "Connection", data: bytes) -> None: ...

    def hung_up(self, connection: "Connection") -> None: ...


class Connection:
    """Between two nodes; `ends` are who is told of what arrives there."""

    def __init__(self, network: "SimNetwork", ends: tuple[int, int]) -> None:
        self.network, self.numbers = network, ends
        self.peers: dict[int, Peer] = {}
        self._arrival_ns = dict.fromkeys(ends, 0)
        self._is_stuck = dict.fromkeys(ends, False)
        self._is_open = dict.fromkeys(ends, True)

    def other(self, number: int) -> int:
        return self.numbers[1] if number == self.numbers[0] else self.numbers[0]

    def is_open(self, number: int) -> bool:
        return self._is_open[number]

    def send(self, sender: int, data: bytes) -> None:
        if not self._is_open[sender]:
            return
        receiver, network = self.other(sender), self.network
        if (sender, receiver) in network.cuts or self._is_stuck[sender]:
            if not self._is_stuck[sender]:
                self._is_stuck[sender] = True
                for end in self.numbers:
                    network.later(_GIVE_UP_MS, partial(self.break_at, end))
            return
        self._deliver(receiver, lambda: self.peers[receiver].heard(self, data))

    def _deliver(self, receiver: int, call: Callable[[], None]) -> None:
        network = self.network
        delay_ns = network.entropy.randint(1, _DELAY_MS_MAX * MS)
        now_ns = network.schedule.clock.monotonic_ns()
        arrival_ns = max(now_ns + delay_ns, self._arrival_ns[receiver])
        self._arrival_ns[receiver] = arrival_ns

        def arrive() -> None:
            if self._is_open[receiver] and receiver in self.peers:
                call()

        network.schedule.after(arrival_ns - now_ns, arrive)

    def break_at(self, number: int) -> None:
        """One side sees that the connection is gone."""
        if self._is_open[number]:
            self._is_open[number] = False
            if number in self.peers:
                self.peers[number].hung_up(self)

    def close(self, number: int) -> None:
        """One side hangs up; the other hears of it, unless the way there is cut."""
        if not self._is_open[number]:
            return
        self._is_open[number] = False
        receiver = self.other(number)
        if (number, receiver) in self.network.cuts:
            self.network.later(_GIVE_UP_MS, lambda: self.break_at(receiver))
        else:
            self._deliver(receiver, lambda: self.break_at(receiver))


class SimNetwork:
    """`cuts` has the pairs (from, to) whose bytes are lost."""

    def __init__(self, schedule: Schedule, entropy: Random) -> None:
        self.schedule, self.entropy = schedule, entropy
        self.cuts: set[tuple[int, int]] = set()

    def later(self, delay_ms_max: int, call: Callable[[], None]) -> None:
        self.schedule.after(self.entropy.randint(1, delay_ms_max * MS), call)

    def connect(self, one: int, other: int) -> Connection | None:
        """None: one of the ways is cut."""
        if (one, other) in self.cuts or (other, one) in self.cuts:
            return None
        return Connection(self, (one, other))
