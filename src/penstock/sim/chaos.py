"""What goes wrong and when. Nearly half of the faults wait for a moment at which a promise has just been made."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from .disk import UNLIMITED, SimDisk
from .faults import Call, Fault, Misbehaviour
from .schedule import MS, SECOND, Schedule
from .terms import Terms

# Moments that faults are aimed at; `notice` is called with these names.
MOMENTS = (
    "replied",
    "replied",
    "rolled",
    "snapshot",
    "planned",
    "messages synced",
    "state synced",
    "intent",
    "forwarded",
    "forwarded",
    "done",
    "leased",
    "leased unsynced",
    "leased unsynced",
    "leased unsynced",
    "duplicate",
    "duplicate",
    "recovered",
    "retained",
)
_AIMED_SHARE = 0.6
_AIMED_ENDINGS = ("power cut", "power cut", "power cut", "kill", "restart")
# A moment that does not come for this long is given up, and the fault happens anyway.
_PATIENCE_NS = 4 * SECOND
_STEPS_S = (-86_400, -300, -5, 5, 300, 86_400)
_WALL_DRIFT_MAX_S = 2 * 86_400
_CALLS = (Call.APPEND, Call.SYNC, Call.CREATE, Call.RENAME, Call.SYNC_DIRECTORY, Call.REMOVE)
_ENDINGS = frozenset({"power cut", "kill", "restart"})


class Victim(Protocol):
    """What faults are done to."""

    disk: SimDisk

    def end_soon(self, kind: str) -> None:
        """End this life of the node after the present event: a power cut, a kill or a restart."""
        ...

    def set_slowness(self, factor: int) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(slots=True)
class Aim:
    kind: str
    moment: str
    since_ns: int


class Chaos:
    """Strikes about every `fault_every_ms`, until it is calmed."""

    def __init__(self, terms: Terms, schedule: Schedule, entropy: Random, victim: Victim) -> None:
        self.terms, self.schedule, self.entropy, self.victim = terms, schedule, entropy, victim
        self.struck: Counter[str] = Counter()
        self.aimed: Counter[str] = Counter()
        self.is_calm = False
        self.has_lied = False
        # Bytes that are left while the disk is nearly full.
        self.space_left = UNLIMITED
        self._aim: Aim | None = None
        self._wall_drift_s = 0
        self._do: dict[str, Callable[[], None]] = {
            "clock step": self._step_clock,
            "slow disk": self._slow_down,
            "full disk": self._fill_up,
            "sync failed": self._fail_sync,
            "cut in a call": self._cut_in_call,
            "lie": self._lie,
        }

    def begin(self) -> None:
        self._later(self.terms.fault_every_ms, self._strike)

    def calm(self) -> None:
        """No more faults, and what was wrong with the disk is over."""
        self.is_calm = True
        self._aim = None
        self.space_left = UNLIMITED
        self.apply_to(self.victim.disk)
        self.victim.disk.faults.clear()
        self.victim.set_slowness(1)

    def apply_to(self, disk: SimDisk) -> None:
        """Make a disk as full as it has to be."""
        used = disk.capacity_bytes - disk.free_bytes()
        disk.capacity_bytes = UNLIMITED if self.space_left == UNLIMITED else used + self.space_left

    def notice(self, moment: str) -> None:
        aim = self._aim
        if aim is not None and aim.moment == moment:
            self._aim = None
            self.aimed[moment] += 1
            self._end(aim.kind)

    def _later(self, mean_ms: int, call: Callable[[], None]) -> None:
        delay_ns = self.entropy.randint(mean_ms * MS // 4, mean_ms * MS * 7 // 4)
        self.schedule.after(delay_ns, lambda: None if self.is_calm else call())

    def _strike(self) -> None:
        self._later(self.terms.fault_every_ms, self._strike)
        now_ns = self.schedule.clock.monotonic_ns()
        if self._aim is not None:
            if now_ns - self._aim.since_ns < _PATIENCE_NS:
                return
            kind, self._aim = self._aim.kind, None
            self._end(kind)
            return
        if self.entropy.random() < _AIMED_SHARE:
            kind = self.entropy.choice(_AIMED_ENDINGS)
            self._aim = Aim(kind, self.entropy.choice(MOMENTS), now_ns)
            return
        kind = self.entropy.choice(self.terms.kinds_of_faults)
        if self.terms.is_lying and self.entropy.random() < 0.3:
            kind = "lie"
        if kind in _ENDINGS:
            self._end(kind)
        else:
            self.struck[kind] += 1
            self._do[kind]()

    def _end(self, kind: str) -> None:
        self.struck[kind] += 1
        self.victim.end_soon(kind)

    def _step_clock(self) -> None:
        step_s = self.entropy.choice(_STEPS_S)
        if abs(self._wall_drift_s + step_s) > _WALL_DRIFT_MAX_S:
            step_s = -step_s
        self._wall_drift_s += step_s
        self.victim.note(f"the wall clock steps by {step_s} s")
        self.schedule.clock.step_wall(step_s * SECOND)

    def _slow_down(self) -> None:
        factor = self.entropy.choice((5, 30))
        self.victim.note(f"the disk becomes {factor} times slower")
        self.victim.set_slowness(factor)
        self._later(1500, lambda: self.victim.set_slowness(1))

    def _fill_up(self) -> None:
        self.space_left = self.entropy.choice((0, 300, 2000))
        self.victim.note(f"the disk has {self.space_left} bytes left")
        self.apply_to(self.victim.disk)
        self._later(1500, self._make_room)

    def _make_room(self) -> None:
        self.victim.note("the disk has room again")
        self.space_left = UNLIMITED
        self.apply_to(self.victim.disk)

    def _fail_sync(self) -> None:
        nth = self.entropy.randint(1, 4)
        self.victim.note(f"sync number {nth} from now fails")
        self.victim.disk.inject(Fault(call=Call.SYNC, does=Misbehaviour.SYNC_FAILED, nth=nth))

    def _cut_in_call(self) -> None:
        call, nth = self.entropy.choice(_CALLS), self.entropy.randint(1, 5)
        self.victim.note(f"the power goes at {call.value} number {nth} from now")
        self.victim.disk.inject(Fault(call=call, does=Misbehaviour.DISK_FAILED, nth=nth))

    def _lie(self) -> None:
        self.has_lied = True
        times = self.entropy.randint(1, 6)
        self.victim.note(f"the next {times} syncs do nothing")
        for call in (Call.SYNC, Call.SYNC_DIRECTORY):
            self.victim.disk.inject(Fault(call=call, does=Misbehaviour.LIE, times=times))
        self._later(400, lambda: self._end("power cut"))
