"""The options of a worker, the errors of its handlers, and how many messages it takes. No I/O."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from traceback import TracebackException, extract_tb
from typing import Any

from ..api.answers import nack_delay_ms
from ..api.arguments import flag, whole_number
from ..api.units import Duration, duration_s
from ..errors import Refused
from .consumer_options import ConsumerOptions
from .leased_messages import Delivered
from .tracing import check_tracer

# Handlers need about so long for the messages in the inbox: enough to be busy while the next poll is under way.
_INBOX_S = 0.25
# How long the lease of a message with a handler is extended; a worker with a `deadline` stops before.
_EXTEND_FOR = "12h"
# Each handler is a thread, or a task, from the start on.
_CONCURRENCY_MAX = 10_000
_PROCESSES_MAX = 256


class Reject(Exception):
    """Raised by a handler: no attempt will ever succeed. The message is a dead letter at once, for this reason."""


class Retry(Exception):
    """Raised by a handler: try again after `delay`, or after the backoff of the topic. Refused: that is no duration."""

    # For a class of the program that does not call `super().__init__()`.
    delay: Duration | None = None

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        # Looked at where the handler fails: its worker could not send it.
        nack_delay_ms(delay)
        self.delay = delay


class HandlerFailed(Exception):
    """A handler raised in another process, or what is no Exception: its error and the places of it.

    The whole traceback is a note, or that of the cause.
    """


_PACKAGE = str(Path(__file__).parent.parent)
_PLACES_MAX = 5
_SOURCE_CHARACTERS_MAX = 120


def failure_of(error: BaseException) -> Exception:
    """Returns what a handler raised as an Exception. SystemExit and the like would end what lets them through."""
    if isinstance(error, Exception):
        return error
    failure = HandlerFailed(error_text(error))
    failure.__cause__ = error
    return failure


def error_text(error: BaseException) -> str:
    """What a failed message remembers: the error in one line, and below it where it was raised, the last places only.

    Our own places, between the worker and the handler, are left out.
    """
    if isinstance(error, HandlerFailed):
        return str(error)  # The other process has made this text.
    # Not str(error): that of the program's own class may raise.
    said = str(TracebackException(type(error), error, None))
    found = [f"{type(error).__name__}: {said}".replace("\n", " ")]
    places = [
        one for one in extract_tb(error.__traceback__) if not one.filename.startswith(_PACKAGE)
    ]
    for one in places[-_PLACES_MAX:]:
        source = (one.line or "")[:_SOURCE_CHARACTERS_MAX]
        found.append(f"  {one.filename}:{one.lineno} in {one.name}: {source}")
    return "\n".join(found)


def check_returned(returned: object) -> None:
    """Refused: a coroutine or generator, of which nothing has run. Its message would be finished and not processed."""
    if isinstance(returned, Coroutine | Generator | AsyncGenerator):
        kind = type(returned).__name__
        if not isinstance(returned, AsyncGenerator):
            returned.close()  # Python warns of coroutines that were never awaited.
        raise Refused(f"the handler returned a {kind}, which does not run: return when all is done")


class Overdue(Exception):
    """A handler took longer than the worker's deadline."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__(f"the handler took longer than {deadline_s:g} s")


class WorkerOptions(ConsumerOptions, total=False):
    """The options of `client.worker`: those of a consumer but `auto_commit`, and these."""

    concurrency: int
    processes: bool
    retries: int | None
    deadline: Duration | None
    grace: Duration
    on_failure: Callable[[Delivered, Exception], Any] | None
    tracer: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """`concurrency`: how many handlers run at once. `processes`: each in a process of its own, killed when it is late.

    `deadline`: a handler that takes longer has failed. `retries`: a message is rejected after so many; None: as the
    topic says. `grace`: how long a stop waits for handlers that run. `tracer`, of OpenTelemetry, makes a span of each
    handler.
    """

    concurrency: int = 1
    processes: bool = False
    retries: int | None = None
    deadline: Duration | None = None
    grace: Duration = 30
    on_failure: Callable[[Delivered, Exception], Any] | None = None
    tracer: Any = None

    def __post_init__(self) -> None:
        flag("processes", self.processes)
        most = _PROCESSES_MAX if self.processes else _CONCURRENCY_MAX
        whole_number("concurrency", self.concurrency, 1, most)
        if self.retries is not None:
            whole_number("retries", self.retries, 0)
        if self.deadline is not None and duration_s(self.deadline, "deadline") <= 0:
            raise Refused(f"deadline must be above 0, got {self.deadline!r}")
        duration_s(self.grace, "grace")
        check_tracer(self.tracer)

    @property
    def deadline_s(self) -> float | None:
        return None if self.deadline is None else duration_s(self.deadline)


_WORKER_ONLY = frozenset(WorkerSettings.__dataclass_fields__)


def split_options(options: WorkerOptions) -> tuple[WorkerSettings, ConsumerOptions]:
    """The settings of a worker, and the options of its consumer. Refused if they do not fit together."""
    own: dict[str, Any] = {name: one for name, one in options.items() if name in _WORKER_ONLY}
    rest: Any = {name: one for name, one in options.items() if name not in _WORKER_ONLY}
    if rest.get("auto_commit"):
        raise Refused("a worker acks each message when its handler returns; leave out auto_commit")
    settings = WorkerSettings(**own)
    if rest.get("order") == "strict" and settings.concurrency > 1:
        raise Refused("order='strict' means one at a time: concurrency must be 1")
    rest.setdefault("extend_for", _EXTEND_FOR)
    return settings, rest


class Pace:
    """How many messages to have in the inbox: enough for a quarter of a second, and one for every handler at least."""

    def __init__(self, concurrency: int, most: int) -> None:
        self._least, self._most = concurrency, max(concurrency, most)
        self._target = concurrency
        self._done, self._at_s = 0, 0.0

    def to_ask_for(self, waiting: int, done: int, now_s: float) -> int:
        """How many messages to poll for now; 0: there are enough."""
        if waiting > self.low:
            return 0
        if now_s > self._at_s:
            rate = (done - self._done) / (now_s - self._at_s)
            self._target = round(min(self._most, max(self._least, rate * _INBOX_S)))
        self._done, self._at_s = done, now_s
        return max(1, self._target - waiting)

    @property
    def low(self) -> int:
        """With no more messages than these it is time to poll."""
        return max(self._least - 1, self._target // 2)
