"""Threads that sync many files side by side.

A file system makes durable together what is asked of it at the same time: three files take it little longer than one.
Where a sync takes less than handing it to a thread, files are synced one after the other.
"""

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread

from ..errors import PenstockError
from ..ports import Clock

Sync = Callable[[], None]
# Handing a sync to a thread and hearing of its end takes about 100 us, and takes the processor from who publishes.
_SLOW_NS = 1_000_000
# So many are worth it on any disk: a node that closes has thousands.
_MANY = 64
# A file system has all that wait for it in the same commit of its journal, so that more gain little.
_THREADS_MAX = 15


class SyncThreads:
    """Of one node, whose plans are run one at a time. No thread is started before a sync was slow."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked: SimpleQueue[_Share | None] = SimpleQueue()
        self._count = 0
        self._is_slow = False

    def run(self, syncs: Sequence[Sync]) -> list[PenstockError | None]:
        """Call all of these, and return when all are done: for each, what it has failed with."""
        started_ns = self._clock.monotonic_ns()
        is_slow = (self._is_slow and len(syncs) > 1) or len(syncs) >= _MANY
        found = self._run_side_by_side(syncs) if is_slow else [*map(_failure_of, syncs)]
        took_ns = self._clock.monotonic_ns() - started_ns
        if syncs:
            self._is_slow = took_ns >= _SLOW_NS * (1 if is_slow else len(syncs))
        return found

    def _run_side_by_side(self, syncs: Sequence[Sync]) -> list[PenstockError | None]:
        # Daemons: a caller that forgets to close must not keep the process from ending.
        for _ in range(min(len(syncs) - 1, _THREADS_MAX) - self._count):
            Thread(target=self._serve, name="penstock-sync", daemon=True).start()
            self._count += 1
        # Of this call alone: a Ctrl-C may leave one before all are done.
        outcomes: SimpleQueue[_Outcome] = SimpleQueue()
        count = min(len(syncs), self._count + 1)
        # To hand over one sync after the other costs more than most of them take.
        for share in range(1, count):
            self._asked.put((share, syncs[share::count], outcomes))
        found: list[PenstockError | None] = [None] * len(syncs)
        found[::count] = map(_failure_of, syncs[::count])
        for _ in range(1, count):
            share, failures = outcomes.get()
            assert share, "a thread that syncs met a bug, of which it has shown the traceback"
            found[share::count] = failures
        return found

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            share, syncs, outcomes = asked
            try:
                failures = [*map(_failure_of, syncs)]
            except BaseException:
                # A bug of ours, and the thread that runs the plan would wait for ever.
                self._count -= 1
                outcomes.put((0, []))
                raise
            outcomes.put((share, failures))

    def close(self) -> None:
        """End the threads, when no sync runs."""
        for _ in range(self._count):
            self._asked.put(None)
        self._count = 0


_Outcome = tuple[int, list[PenstockError | None]]
"""The number of a share of the syncs, from 1 on, and what each failed with. 0: a thread met a bug."""
_Share = tuple[int, Sequence[Sync], SimpleQueue[_Outcome]]


def _failure_of(sync: Sync) -> PenstockError | None:
    try:
        sync()
    except PenstockError as error:
        return error.fresh()
    return None
