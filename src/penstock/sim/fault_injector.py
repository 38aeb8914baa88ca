"""Injects faults at random times. Nearly half of them wait for a moment at which a promise has just been made."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from .disk import UNLIMITED, SimDisk
from .faults import Call, Fault, Misbehaviour
from .parameters import Parameters
from .schedule import MS, SECOND, Schedule

# Moments that faults are aimed at; `notice` is called with these names. `Parameters.aims` may also name "done synced".
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
# After this time an aimed fault happens even if its moment did not come.
_PATIENCE_NS = 4 * SECOND
_STEPS_S = (-86_400, -300, -5, 5, 300, 86_400)
_WALL_DRIFT_MAX_S = 2 * 86_400
_CALLS = (Call.APPEND, Call.SYNC, Call.CREATE, Call.RENAME, Call.SYNC_DIRECTORY, Call.REMOVE)
_ENDINGS = frozenset({"power cut", "kill", "restart"})


class FaultTarget(Protocol):
    """The part of `World` that faults act on."""

    disk: SimDisk

    def end_soon(self, kind: str) -> None:
        """End this life of the node after the present event: a power cut, a kill or a restart."""
        ...

    def set_slowness(self, factor: int) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(slots=True)
class AimedFault:
    """A fault that waits for a moment, since when."""

    kind: str
    moment: str
    since_ns: int


class FaultInjector:
    """Injects a fault about every `fault_every_ms`, until `stop`."""

    def __init__(
        self, parameters: Parameters, schedule: Schedule, entropy: Random, target: FaultTarget
    ) -> None:
        self.parameters, self.schedule, self.entropy, self.target = (
            parameters,
            schedule,
            entropy,
            target,
        )
        self.struck: Counter[str] = Counter()
        self.aimed: Counter[str] = Counter()
        self.is_stopped = False
        self.has_lied = False
        # Bytes that are left while the disk is nearly full.
        self.space_left = UNLIMITED
        self._aim: AimedFault | None = None
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
        self._later(self.parameters.fault_every_ms, self._strike)

    def stop(self) -> None:
        """End all faults and repair the disk."""
        self.is_stopped = True
        self._aim = None
        self.space_left = UNLIMITED
        self.apply_to(self.target.disk)
        self.target.disk.faults.clear()
        self.target.set_slowness(1)

    def apply_to(self, disk: SimDisk) -> None:
        """Set the capacity of a disk so that only `space_left` bytes are free."""
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
        self.schedule.after(delay_ns, lambda: None if self.is_stopped else call())

    def _strike(self) -> None:
        self._later(self.parameters.fault_every_ms, self._strike)
        now_ns = self.schedule.clock.monotonic_ns()
        if self._aim is not None:
            if now_ns - self._aim.since_ns < _PATIENCE_NS:
                return
            kind, self._aim = self._aim.kind, None
            self._end(kind)
            return
        if self.entropy.random() < _AIMED_SHARE:
            kind = self.entropy.choice(_AIMED_ENDINGS)
            self._aim = AimedFault(
                kind, self.entropy.choice(self.parameters.aims or MOMENTS), now_ns
            )
            return
        kind = self.entropy.choice(self.parameters.kinds_of_faults)
        if self.parameters.is_lying and self.entropy.random() < 0.3:
            kind = "lie"
        if kind in _ENDINGS:
            self._end(kind)
        else:
            self.struck[kind] += 1
            self._do[kind]()

    def _end(self, kind: str) -> None:
        self.struck[kind] += 1
        self.target.end_soon(kind)

    def _step_clock(self) -> None:
        step_s = self.entropy.choice(_STEPS_S)
        if abs(self._wall_drift_s + step_s) > _WALL_DRIFT_MAX_S:
            step_s = -step_s
        self._wall_drift_s += step_s
        self.target.note(f"the wall clock steps by {step_s} s")
        self.schedule.clock.step_wall(step_s * SECOND)

    def _slow_down(self) -> None:
        factor = self.entropy.choice((5, 30))
        self.target.note(f"the disk becomes {factor} times slower")
        self.target.set_slowness(factor)
        self._later(1500, lambda: self.target.set_slowness(1))

    def _fill_up(self) -> None:
        self.space_left = self.entropy.choice((0, 300, 2000))
        self.target.note(f"the disk has {self.space_left} bytes left")
        self.apply_to(self.target.disk)
        self._later(1500, self._make_room)

    def _make_room(self) -> None:
        self.target.note("the disk has room again")
        self.space_left = UNLIMITED
        self.apply_to(self.target.disk)

    def _fail_sync(self) -> None:
        nth = self.entropy.randint(1, 4)
        self.target.note(f"sync number {nth} from now fails")
        self.target.disk.inject(Fault(call=Call.SYNC, does=Misbehaviour.SYNC_FAILED, nth=nth))

    def _cut_in_call(self) -> None:
        call, nth = self.entropy.choice(_CALLS), self.entropy.randint(1, 5)
        self.target.note(f"the power goes at {call.value} number {nth} from now")
        self.target.disk.inject(Fault(call=call, does=Misbehaviour.DISK_FAILED, nth=nth))

    def _lie(self) -> None:
        self.has_lied = True
        times = self.entropy.randint(1, 6)
        self.target.note(f"the next {times} syncs do nothing")
        for call in (Call.SYNC, Call.SYNC_DIRECTORY):
            self.target.disk.inject(Fault(call=call, does=Misbehaviour.LIE, times=times))
        self._later(400, lambda: self._end("power cut"))
