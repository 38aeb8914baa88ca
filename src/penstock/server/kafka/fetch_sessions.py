"""The partitions that a client fetches, kept from one fetch to the next: fetch sessions (KIP-227), and clients without.

A partition at whose end the client has arrived is watched, and not read again before it grows: a fetch costs what has
changed. A client with a session names only what it changes; one without names all, which is compared.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from secrets import randbits

from ...api.principals import Principal
from ...runtime.asynchronous import AsyncDriver
from ...runtime.waits import Key, PartitionEnd
from .errors import Code
from .wire import Values

NO_SESSION = 0
# Ask for no session, or for the end of one; ask for a new one.
FINAL_EPOCH, INITIAL_EPOCH = -1, 0
_EPOCH_MAX = (1 << 31) - 1
_SESSION_ID_BITS = 31
# A partition takes about 1 KB.
_SESSIONS_MAX = 1000
_PARTITIONS_MAX = 10_000
_PARTITIONS_MAX_ALL = 100_000
# A session that was used or made within this time is not evicted, or not for a smaller one.
_EVICTION_S = 120.0


class FetchPosition:
    """A partition that a client fetches: from where on, and what it was told last."""

    __slots__ = ("bytes_max", "end", "epoch", "offset", "start", "told", "watched_at")

    def __init__(self) -> None:
        self.offset = self.bytes_max = 0
        # The epoch of the log as the client knows it from metadata; below zero if it does not say.
        self.epoch = -1
        # Where the partition began and ended when it was looked at last.
        self.start = self.end = -1
        # The start and the end that the client was told last in this session.
        self.told: tuple[int, int] | None = None
        # It has not grown beyond this offset; None: it may have.
        self.watched_at: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether there may be something to read."""
        return self.watched_at != self.offset

    def move(self, wanted: Values) -> None:
        """Take what a request says of the partition."""
        if wanted["current_leader_epoch"] != self.epoch:
            # Its answer may be another one now.
            self.end = -1
        self.offset, self.bytes_max = wanted["fetch_offset"], wanted["partition_max_bytes"]
        self.epoch = wanted["current_leader_epoch"]


class FetchSession:
    """What one connection fetches. Belongs to the loop, except for `_wake`."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        # On whose behalf the partitions were read.
        self.principal: Principal | None = None
        self.positions: dict[PartitionEnd, FetchPosition] = {}
        # Partitions to read with the next fetch, in this order: one that gave something has its turn last.
        self.due: dict[PartitionEnd, None] = {}
        # Whether it is there for the next fetch, and whether a fetch is under way.
        self.is_kept = self.is_busy = False
        self.made_at = self.used_at = 0.0
        # The version and the bytes of the last response, if it named all partitions and nothing was due in any. It is
        # sent again to a client without a session that asks for the same partitions while nothing grows.
        self.idle_response: tuple[int, bytes] | None = None
        # Watched partitions that have grown since; guarded by the driver's lock.
        self._grown: dict[PartitionEnd, None] = {}
        self._resolve: Callable[[], None] | None = None

    def replace(self, topics: Iterable[Values]) -> None:
        """Fetch these partitions, and no others."""
        before, self.positions, self.due = self.positions, {}, {}
        for topic in topics:
            for wanted in topic["partitions"]:
                key = PartitionEnd(topic["topic"], wanted["partition"])
                position = before.pop(key, None) or self.positions.get(key) or FetchPosition()
                position.told = None
                self._place(key, position, wanted)
        for key, position in before.items():
            self.idle_response = None
            self._unwatch(key, position)

    def update(self, topics: Iterable[Values], forgotten: Iterable[Values]) -> None:
        """Fetch these partitions from here on besides the others, and some no longer."""
        for topic in topics:
            for wanted in topic["partitions"]:
                key = PartitionEnd(topic["topic"], wanted["partition"])
                self._place(key, self.positions.get(key) or FetchPosition(), wanted)
        for topic in forgotten:
            for partition in topic["partitions"]:
                key = PartitionEnd(topic["topic"], partition)
                position = self.positions.pop(key, None)
                if position is not None:
                    self.due.pop(key, None)
                    self._unwatch(key, position)

    def _place(self, key: PartitionEnd, position: FetchPosition, wanted: Values) -> None:
        position.move(wanted)
        self.positions[key] = position
        self._note_due(key, position)

    def _note_due(self, key: PartitionEnd, position: FetchPosition) -> None:
        if position.is_due or position.end < 0:
            self.due[key] = None
        else:
            self.due.pop(key, None)

    def answered(self, key: PartitionEnd, *, has_records: bool) -> None:
        """A fetch has looked at a partition."""
        if has_records:
            self.due.pop(key, None)
        self._note_due(key, self.positions[key])

    def watch(self, key: PartitionEnd, end: int) -> None:
        """Hear of it when a partition grows beyond an offset."""
        position = self.positions[key]
        if position.watched_at != end:
            self._unwatch(key, position)
            position.watched_at = end
            self._driver.subscribe(key, end, self._wake)

    def _unwatch(self, key: PartitionEnd, position: FetchPosition) -> None:
        if position.watched_at is not None:
            self._driver.unsubscribe(key, position.watched_at, self._wake)
            self._grown.pop(key, None)
            position.watched_at = None

    def _wake(self, key: Key) -> None:
        """Called by any thread, with the lock held."""
        assert isinstance(key, PartitionEnd), "nothing else is watched"
        self._grown[key] = None
        if self._resolve is not None:
            self._resolve()

    def take_grown(self) -> list[PartitionEnd]:
        """Watched partitions that have grown, or are gone, since this was asked last. They are due."""
        with self._driver.driver.lock:
            grown, self._grown = self._grown, {}
        for key in grown:
            self.positions[key].watched_at = None
            self.due[key] = None
        return [*grown]

    async def until_grown(self, timeout_ns: int) -> None:
        """Return when a watched partition has grown, when the time is up, or with a drain."""
        done, resolve = self._driver.signal()
        with self._driver.driver.lock:
            if self._grown:
                return
            self._resolve = resolve
        try:
            await self._driver.wait(done, timeout_ns)
        finally:
            self._resolve = None

    def close(self) -> None:
        """Watch nothing any more."""
        for key, position in self.positions.items():
            self._unwatch(key, position)
        self.positions, self.due = {}, {}


class FetchSessions:
    """All that are kept, of one event loop. A connection has one at most.

    Evicts as Kafka does: one that was not used for two minutes, or else one that is two minutes old and no larger than
    the new one.
    """

    def __init__(
        self,
        *,
        sessions_max: int = _SESSIONS_MAX,
        partitions_max: int = _PARTITIONS_MAX,
        partitions_max_all: int = _PARTITIONS_MAX_ALL,
    ) -> None:
        self._sessions_max = sessions_max
        self._partitions_max, self._partitions_max_all = partitions_max, partitions_max_all
        # With how many partitions each counts; the one that was used last is at the end.
        self._sizes: OrderedDict[FetchSession, int] = OrderedDict()
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def begin(
        self, kept: FetchSession | None, driver: AsyncDriver, request: Values
    ) -> FetchSession | Code:
        """The session that a request is for, with what it asks for; or why there is none.

        What the connection has kept ends, or goes on, with another set of partitions.
        """
        now, epoch = driver.loop.time(), request["session_epoch"]
        if kept is not None and kept.is_kept:
            kept.take_grown()
        else:
            kept = None
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            session = kept or FetchSession(driver)
            if epoch == INITIAL_EPOCH or kept is None:
                session.made_at = now
            session.replace(request["topics"])
            session.id = self._new_id() if epoch == INITIAL_EPOCH else NO_SESSION
            session.epoch = INITIAL_EPOCH
        elif kept is None or kept.id == NO_SESSION or kept.id != request["session_id"]:
            return Code.FETCH_SESSION_ID_NOT_FOUND
        elif epoch != kept.epoch:
            return Code.INVALID_FETCH_SESSION_EPOCH
        else:
            session = kept
            session.update(request["topics"], request["forgotten_topics_data"])
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.is_busy = True
        session.used_at = now
        if not session.positions or not self._is_room_for(session, now):
            self.forget(session)
        return session

    def _new_id(self) -> int:
        taken = {session.id for session in self._sizes} | {NO_SESSION}
        while (session_id := randbits(_SESSION_ID_BITS)) in taken:
            pass
        return session_id

    def _is_room_for(self, session: FetchSession, now: float) -> bool:
        """Keep a session with as many partitions as it has now, if there is room for it."""
        size = len(session.positions)
        self._drop(session)
        if size > self._partitions_max:
            return False
        while (
            len(self._sizes) >= self._sessions_max
            or self.partitions + size > self._partitions_max_all
        ):
            evicted = self._evictable(size, now)
            if evicted is None:
                return False
            self.forget(evicted)
        self._sizes[session] = size
        self.partitions += size
        session.is_kept = True
        return True

    def _evictable(self, size: int, now: float) -> FetchSession | None:
        oldest = next(iter(self._sizes), None)
        if oldest is None or now - oldest.used_at > _EVICTION_S:
            return oldest
        old = [session for session in self._sizes if now - session.made_at > _EVICTION_S]
        smallest = min(old, key=self._sizes.__getitem__, default=None)
        return None if smallest is None or self._sizes[smallest] > size else smallest

    def forget(self, session: FetchSession) -> None:
        """Keep a session no longer: its client has to name all of its partitions again."""
        self._drop(session)
        session.id, session.is_kept = NO_SESSION, False
        if not session.is_busy:
            session.close()

    def _drop(self, session: FetchSession) -> None:
        self.partitions -= self._sizes.pop(session, 0)

    def end(self, session: FetchSession) -> None:
        """A fetch has been answered."""
        session.is_busy = False
        if not session.is_kept:
            session.close()
