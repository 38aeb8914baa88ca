"""Reading one range from the broker: the whole work of a task. It gives exactly the range, or it fails."""

from collections.abc import Iterator

from ..client import Client
from ..client.fetch import LIMIT_MAX_BATCHES, PREFETCH_BYTES, Fetched, FetchRequest
from ..client.synchronous.prefetch import Prefetch
from ..errors import NotFound, OffsetOutOfRange
from .decoding import Stored
from .files import FileReader
from .losses import lost_by_retention, lost_by_shrinking, topic_gone
from .offsets import OffsetRange, key_of
from .parts import parts_of


class RangeReader:
    """Fetches a range, one request ahead of the task that takes the batches."""

    def __init__(self, client: Client, wanted: OffsetRange, *, is_loss_fatal: bool) -> None:
        self._client, self._wanted, self._is_loss_fatal = client, wanted, is_loss_fatal
        self._key = key_of(wanted.topic, wanted.partition)

    def stored(self, files: FileReader | None = None) -> Iterator[Stored]:
        """The stored batches of the range. DataLoss if a part of it is gone, unless that is allowed."""
        at = self._wanted.start
        if files is not None:
            at = yield from files.stored(self._client, self._wanted)
        yield from self._from_broker(at)

    def _from_broker(self, at: int) -> Iterator[Stored]:
        prefetch = Prefetch(self._client.pool)
        try:
            while at < self._wanted.end:
                fetched = self._fetched(at, prefetch)
                if fetched is None or fetched.next_offset <= at:
                    at = self._after_loss(at, fetched)
                    continue
                yield from parts_of(fetched.batches, at, self._wanted.end)
                at = fetched.next_offset
        finally:
            prefetch.drop()

    def _asked(self, at: int) -> FetchRequest:
        # In few different words: a server remembers what it was asked for last. What is too much is left out here.
        left = 1 << (self._wanted.end - at - 1).bit_length()
        limit = min(LIMIT_MAX_BATCHES, left)
        topic, partition = self._wanted.topic, self._wanted.partition
        return FetchRequest(topic, partition, offset=at, limit=limit, max_bytes=PREFETCH_BYTES)

    def _following(self, at: int) -> FetchRequest | None:
        return self._asked(at) if at < self._wanted.end else None

    def _fetched(self, at: int, prefetch: Prefetch) -> Fetched | None:
        """What is there from an offset on; None if the partition does not reach there."""
        try:
            return prefetch.fetch(self._asked(at), self._following)
        except OffsetOutOfRange:
            return None
        except NotFound:
            raise topic_gone(self._wanted.topic) from None

    def _after_loss(self, at: int, fetched: Fetched | None) -> int:
        """Where to go on, with a part of the range gone."""
        first = fetched or self._client.fetch(
            self._wanted.topic, self._wanted.partition, limit=1, max_bytes=1
        )
        is_before = at < first.earliest
        if self._is_loss_fatal and is_before:
            raise lost_by_retention(self._key, at, first.earliest)
        if self._is_loss_fatal:
            raise lost_by_shrinking(self._key, self._wanted.end, first.latest, is_same=True)
        return min(first.earliest, self._wanted.end) if is_before else self._wanted.end
