"""From the intake into the log: many puts become one columnar batch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from ..api.publish import Published
from ..broker.partition import Now, Partition
from ..codec import Columns, encode
from ..config import OFF
from ..errors import NoSpace, PenstockError, Refused, TooLarge
from ..model import Message
from ..runtime.threads import ThreadDriver
from ..runtime.ticker import NEVER_NS
from .intake import Content, Contents, Intake
from .stats import Timings

T = TypeVar("T")
# Larger ones are counted, so that a batch of small ones cannot grow over its limit.
SMALL_BYTES_MAX = 1024
# A power of two. The fixed cost of a batch, some 50 us, is 6 ns a message at this many.
FLUSH_MESSAGES = 8192
_BATCH_MESSAGES_MAX = 2 * FLUSH_MESSAGES
_BATCH_BYTES_MAX = 4 << 20


class Inlet:
    """Writes what was put. All methods with the driver's lock held, except `intake.take_in`."""

    def __init__(
        self,
        driver: ThreadDriver,
        find: Callable[[], Partition],
        timings: Timings,
        *,
        bytes_max: int,
    ) -> None:
        """Bare values have at most `bytes_max`; larger ones come as messages, and are counted."""
        self._driver, self._find, self._timings = driver, find, timings
        self.intake = Intake(find().messages.end_offset, driver.lock, bytes_max)
        self._refusal: PenstockError | None = None
        self._emptied_ns = 0
        driver.while_firing = self.paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Somebody else appends to the log, so that nobody may be given an id meanwhile."""
        self.intake.stop()
        try:
            self.flush(self._driver.now())
            yield
        finally:
            self.intake.go_on(self._find().messages.end_offset)

    def due_ns(self, linger_ns: int) -> int:
        """When what waits has to be written: nothing in there is older than the last time it was empty."""
        return self._emptied_ns + linger_ns if self.intake.waiting else NEVER_NS

    @property
    def is_refusing(self) -> bool:
        return self._refusal is not None

    def flush(self, now: Now) -> None:
        """Bring everything that was put into the log."""
        intake, partition = self.intake, self._find()
        if partition.messages.end_offset > intake.last_out:
            # A Ctrl-C came after the write and before anybody took note of it.
            intake.take_out(partition.messages.end_offset)
        while intake.waiting:
            self._write(partition, now)
            self._driver.note_change()
        self._emptied_ns = now.monotonic_ns

    def _write(self, partition: Partition, now: Now) -> None:
        started_ns = self._driver.clock.monotonic_ns()
        before = partition.messages.bytes_appended
        try:
            published = self._append(partition, now)
        except TooLarge:
            if self.intake.is_mixed:
                raise
            # Many threads have put many large ones at once: count them.
            self.intake.is_mixed = True
            return
        except NoSpace as error:
            self._refuse(error)
            raise
        self.intake.take_out(published.durable_at)
        self._timings.write.add(self._driver.clock.monotonic_ns() - started_ns)
        self._require_space(partition.messages.bytes_appended - before, now)

    def _append(self, partition: Partition, now: Now) -> Published:
        intake = self.intake
        contents = intake.first(_BATCH_MESSAGES_MAX)
        if intake.is_mixed:
            columns = _columns_of(_fitting(contents), partition.config.ttl_ms, now)
        else:
            expires_at = _expiry(partition.config.ttl_ms, now)
            columns = Columns(values=contents, timestamps=now.wall_ns, expires_at=expires_at)  # type: ignore[arg-type]  # Not mixed: bare values.
        encoded = encode(columns, compression=partition.compression, limits=partition.limits)
        return partition.append(encoded, now)

    def _require_space(self, size: int, now: Now) -> None:
        """What was accepted is written; what comes next is refused while there is too little room."""
        try:
            self._driver.node.guard.admit_bytes(size, now)
        except NoSpace as error:
            self._refuse(error)

    def _refuse(self, error: PenstockError) -> None:
        self._refusal = error

        def refuse(_contents: Contents) -> int:
            raise error.with_traceback(None)

        self.intake.refuse(refuse)

    def try_again(self, now: Now) -> None:
        """Accept again if what kept us from it is over."""
        if self._refusal is None:
            return
        try:
            self._driver.node.guard.admit_bytes(0, now)
        except NoSpace:
            return
        self._refusal = None
        self.intake.accept()
        self.flush(now)

    def close(self, now: Now) -> None:
        """Write what is left, and refuse from now on."""
        self._refuse(Refused("the queue is closed"))
        self.flush(now)


def _fitting(contents: Sequence[Content]) -> Sequence[Content]:
    """As many, from the first on, as make a batch of moderate size; at least one."""
    total = 0
    for index, one in enumerate(contents):
        total += size_of(one)
        if total > _BATCH_BYTES_MAX and index:
            return list(islice(contents, index))
    return contents


def size_of(content: Content) -> int:
    if isinstance(content, bytes):
        return len(content)
    headers = sum(len(name) + len(value) for name, value in content.headers)
    return len(content.value or b"") + len(content.key or b"") + headers


def _expiry(ttl_ms: int, now: Now) -> int | None:
    return None if ttl_ms == OFF else now.wall_ns + ttl_ms * 1_000_000


def _unless_all(column: list[T], nothing: T) -> list[T] | None:
    """None for a column that says nothing."""
    return None if column.count(nothing) == len(column) else column


def _columns_of(contents: Sequence[Content], ttl_ms: int, now: Now) -> Columns:
    """Columns of bare values and whole messages together."""
    standard = _expiry(ttl_ms, now)
    messages = [
        Message(one, timestamp=now.wall_ns) if isinstance(one, bytes) else one for one in contents
    ]
    expiries = [one.expires_at if one.expires_at is not None else standard for one in messages]
    return Columns(
        values=[one.value for one in messages],
        keys=_unless_all([one.key for one in messages], None),
        timestamps=[one.timestamp for one in messages],
        headers=_unless_all([one.headers for one in messages], ()),
        priorities=[int(one.priority) for one in messages],
        expires_at=_unless_all(expiries, None),
        idempotency_keys=_unless_all([one.idempotency_key for one in messages], None),
    )
