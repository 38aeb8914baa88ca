"""Faults of a simulated disk, apart from a power cut."""

from dataclasses import dataclass
from enum import Enum

from ..errors import DiskFailed, NoSpace, SyncFailed
from ..ports import Entropy

ALWAYS = 1 << 62


class Call(Enum):
    """A method of `File` or `Disk` that a fault can wait for."""

    OPEN = "open"
    CREATE = "create"
    APPEND = "append"
    READ = "read"
    TRUNCATE = "truncate"
    SYNC = "sync"
    RENAME = "rename"
    MOVE = "move"
    REMOVE = "remove"
    REMOVE_DIRECTORY = "remove_directory"
    MAKE_DIRECTORIES = "make_directories"
    SYNC_DIRECTORY = "sync_directory"


class Misbehaviour(Enum):
    NO_SPACE = "no space"
    DISK_FAILED = "disk failed"
    SYNC_FAILED = "sync failed"
    # Only for the two syncs: they return, and nothing became durable.
    LIE = "lie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Misbehave at the `nth` matching call from now, and at the following ones, `times` in all.

    With `one_in` above 1 only one in so many of these calls fails. A call matches if its path contains `path_part`.
    """

    call: Call
    does: Misbehaviour
    path_part: str = ""
    nth: int = 1
    times: int = 1
    one_in: int = 1

    def __post_init__(self) -> None:
        is_sync = self.call in {Call.SYNC, Call.SYNC_DIRECTORY}
        assert is_sync or self.does not in {Misbehaviour.LIE, Misbehaviour.SYNC_FAILED}
        assert self.nth >= 1
        assert self.times >= 1
        assert self.one_in >= 1


class Faults:
    """The faults that wait for their calls."""

    def __init__(self, entropy: Entropy | None = None) -> None:
        self._entropy = entropy
        self._pending: list[_Pending] = []

    def add(self, fault: Fault) -> None:
        assert fault.one_in == 1 or self._entropy is not None, "drawing lots needs entropy"
        self._pending.append(_Pending(fault))

    def clear(self) -> None:
        self._pending.clear()

    def is_lying(self, call: Call, path: str) -> bool:
        """Raise the fault that waits for this call. True: the call must do nothing and report success."""
        if not self._pending:
            return False
        lies = False
        for pending in self._pending:
            if not pending.is_met_by(call, path, self._entropy):
                continue
            match pending.fault.does:
                case Misbehaviour.NO_SPACE:
                    raise NoSpace(path)
                case Misbehaviour.DISK_FAILED:
                    raise DiskFailed(path, "injected")
                case Misbehaviour.SYNC_FAILED:
                    raise SyncFailed(path, "injected")
                case Misbehaviour.LIE:
                    lies = True
        return lies


class _Pending:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._to_skip = fault.nth - 1
        self._left = fault.times

    def is_met_by(self, call: Call, path: str, entropy: Entropy | None) -> bool:
        fault = self.fault
        if call is not fault.call or fault.path_part not in path or self._left == 0:
            return False
        if self._to_skip:
            self._to_skip -= 1
            return False
        if fault.one_in > 1 and entropy is not None and entropy.randint(1, fault.one_in) > 1:
            return False
        self._left -= 1
        return True
