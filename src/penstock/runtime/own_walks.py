"""Walks that no client asked for, in the thread of the ticker: sweeps, and topics that are made or removed.

And the effects of all walks, one at a time: many of them at once would keep the disk from those who publish.
"""

from threading import RLock
from typing import TYPE_CHECKING

from ..api.command import Command
from ..api.topics import FinishTopics, SweepDue
from ..broker.walks import Effect
from ..errors import Cancelled, Fatal, PenstockError
from .commit import Committer
from .slices import SlicedCommand
from .ticker import NEVER_NS

if TYPE_CHECKING:
    from .threads import ThreadDriver

# A full disk, mostly: what could not be done on time is tried again after this long.
RETRY_NS = 1_000_000_000


class OwnWalks:
    """Those of one driver."""

    def __init__(self, driver: "ThreadDriver", committer: Committer) -> None:
        self._driver, self._committer = driver, committer
        self.sweep_at_ns = driver.node.sweeps.next_ns
        # Held while an effect is run.
        self.effects = RLock()
        self._current = SlicedCommand(driver, FinishTopics(), is_own=True)
        self._is_closed = False

    def expect_sweep(self, due_ns: float) -> None:
        """With the lock held."""
        self.sweep_at_ns = due_ns
        self._driver.expect(due_ns)

    def run_due(self) -> None:
        """Do what no client waits for, and sweep if it is time."""
        driver = self._driver
        if driver.node.works.unattended() is not None:
            self._run(FinishTopics(), "cannot make or remove topics")
        if driver.clock.monotonic_ns() < self.sweep_at_ns:
            return
        self.sweep_at_ns = NEVER_NS
        self._run(SweepDue(), "cannot remove what is old")
        with driver.lock:
            due_ns, now_ns = driver.node.sweeps.next_ns, driver.clock.monotonic_ns()
            # What was refused is still due.
            self.expect_sweep(due_ns if due_ns > now_ns else now_ns + RETRY_NS)

    def _run(self, command: Command[None], hindrance: str) -> None:
        """Carry out a walk; what is due meanwhile is done between its slices."""
        self._current = walk = SlicedCommand(self._driver, command, is_own=True)
        if self._is_closed:
            return
        try:
            walk.run(self._driver.catch_up)
        except (Fatal, Cancelled):
            return  # The committer has told all callers; or the driver is closed.
        except PenstockError as error:
            self._driver.hindered(hindrance, error)

    def run_effect(self, effect: Effect) -> None:
        """Run an effect of a walk, when it has its turn. Without the driver's lock."""
        try:
            with self.effects, self._committer.failing():
                self._committer.check()
                effect.run()
        except PenstockError:
            raise
        except BaseException:
            # It may be half done, and nothing would ever go on with it.
            self._driver.interrupted()
            raise

    def close(self) -> None:
        """Begin no walk any more; the one that is under way ends with its slice."""
        self._is_closed = True
        self._current.close()
