"""A handler of a worker in a process of its own, which is killed when it is late."""

import atexit
import contextlib
import signal
import sys
import traceback
from collections.abc import Callable
from enum import Enum
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from ..errors import Refused
from .leased_messages import Delivered, DetachedMessage
from .worker import HandlerFailed, Overdue, Reject, Retry, check_returned, error_text

# Not fork: the threads of the client hold locks, which a forked process would find taken for ever.
_PROCESSES = get_context("spawn")
# The system cannot wait for more milliseconds at a time than 31 bits hold.
_WAIT_S_MAX = 86_400.0


class Ended(Enum):
    """How a call of a handler ended."""

    RETURNED = "returned"
    REJECTED = "rejected"
    RETRIED = "retried"
    FAILED = "failed"


Outcome = tuple[Ended, tuple[Any, ...]]


class HandlerEnded(Exception):
    """The process of a handler ended before the handler returned."""


class HandlerProcess:
    """Calls a handler in another process, which is started for the first message, and again after it was killed."""

    def __init__(self, handler: Callable[[Any], Any], limit_s: float | None) -> None:
        self._handler, self._limit_s = handler, limit_s
        self._process: Any = None
        self._pipe: Any = None
        self._is_new = True

    def __call__(self, message: Delivered) -> None:
        """Raises what the handler raises; Overdue if it takes too long, HandlerEnded if its process ends."""
        if self._pipe is None:
            self._start()
        pipe = self._pipe
        try:
            if self._is_new:
                self._is_new = (
                    pipe.recv()
                )  # It is ready; its start does not count for the deadline.
            pipe.send(message)
            if not _is_ready_within(pipe, self._limit_s):
                raise Overdue(self._limit_s or 0.0)
            outcome = pipe.recv()
        except (EOFError, OSError):
            code = self._drop()
            raise HandlerEnded(f"the process of the handler ended with exit code {code}") from None
        except BaseException:
            # What it may still send would be taken for the outcome of the next message.
            self._drop()
            raise
        _raise(outcome)

    def _start(self) -> None:
        ours, theirs = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(
            target=_handle_all, args=(self._handler, theirs), daemon=True
        )
        self._process.start()
        # Before multiprocessing ends: it would send SIGTERM, and wait for the process.
        atexit.register(self._process.kill)
        theirs.close()
        self._pipe, self._is_new = ours, True

    def kill(self) -> None:
        """End the process, whatever it does. From any thread: a call that waits for it raises HandlerEnded."""
        if (process := self._process) is not None:
            _kill(process)

    def _drop(self) -> int | None:
        """Kill the process and forget it, in the thread that calls the handler; returns its exit code."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        _kill(process)
        pipe.close()
        code: int | None = process.exitcode
        return code


def _is_ready_within(pipe: Connection, limit_s: float | None) -> bool:
    """Wait for something to receive; returns whether it came in time."""
    while limit_s is not None and limit_s > _WAIT_S_MAX:
        if pipe.poll(_WAIT_S_MAX):
            return True
        limit_s -= _WAIT_S_MAX
    return pipe.poll(limit_s)


def _kill(process: Any) -> None:
    process.kill()
    process.join()
    atexit.unregister(process.kill)


def check_process_handler(handler: Callable[..., Any]) -> None:
    """Refused if another process could not import the handler."""
    found: Any = sys.modules.get(getattr(handler, "__module__", None) or "")
    for name in getattr(handler, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    if found is not handler:
        raise Refused(
            "with processes a handler is a function of a module: another process imports it"
        )


def _handle_all(handler: Callable[[DetachedMessage], Any], pipe: Connection) -> None:
    """What the other process does: one message after the other, until the worker closes the pipe or is gone."""
    # Ctrl-C of a terminal, and the SIGTERM that systemd sends to every process of a unit, are for the worker, which
    # waits for this process and kills it at the end. Not SIG_IGN: programs that the handler starts would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_to_worker)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(False)  # Not new any more.
        while True:
            pipe.send(_outcome_of(handler, pipe.recv()))


def _leave_to_worker(_number: int, _frame: object) -> None:
    """Do nothing at a signal."""


def _outcome_of(handler: Callable[[DetachedMessage], Any], message: DetachedMessage) -> Outcome:
    """Call the handler; returns how it ended, in words that need no class of the handler's module."""
    try:
        check_returned(handler(message))
    except Reject as rejection:
        return Ended.REJECTED, (str(rejection),)
    except Retry as again:
        return Ended.RETRIED, (str(again), again.delay)
    except Exception as error:
        return Ended.FAILED, (error_text(error), traceback.format_exc())
    return Ended.RETURNED, ()


def _raise(outcome: Outcome) -> None:
    """Raise in the worker what the handler raised."""
    ended, told = outcome
    if ended is Ended.REJECTED:
        raise Reject(*told)
    if ended is Ended.RETRIED:
        reason, delay = told
        raise Retry(reason, delay=delay)
    if ended is Ended.FAILED:
        summary, trace = told
        error = HandlerFailed(summary)
        error.add_note(trace.rstrip())
        raise error
