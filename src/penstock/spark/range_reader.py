"""Reads one range from the broker: the work of a task. It returns exactly the range, or fails."""

from collections.abc import Iterator

from ..api.queries import ListEnds
from ..client import Client
from ..client.fetch import LIMIT_MAX_BATCHES, PREFETCH_BYTES, Fetched, FetchRequest
from ..client.synchronous.prefetch import Prefetch
from ..errors import NotFound, OffsetOutOfRange
from .decoder import BatchPart, parts_of
from .file_reader import FileReader
from .losses import lost_by_damage, lost_by_retention, lost_by_shrinking, pass_over, topic_deleted
from .offsets import OffsetRange, key_of


class RangeReader:
    """Fetches a range, one request ahead of the task that takes the batches."""

    def __init__(self, client: Client, wanted: OffsetRange, *, is_loss_fatal: bool) -> None:
        self._client, self._wanted, self._is_loss_fatal = client, wanted, is_loss_fatal
        self._key = key_of(wanted.topic, wanted.partition)

    def is_of_topic(self, topic_id: int) -> bool:
        """Whether the topic is still the one with this id. DataLoss: it is not, or it is gone, and a loss is fatal."""
        name = self._wanted.topic
        found = self._client.execute(ListEnds([name])).topics.get(name)
        if found is None:
            raise topic_deleted(name)
        if found.id == topic_id:
            return True
        # It may have fewer partitions now.
        ends = found.partitions.get(str(self._wanted.partition))
        latest = 0 if ends is None else ends.latest
        loss = lost_by_shrinking(self._key, self._wanted.start, latest, is_same=False)
        pass_over(loss, is_fatal=self._is_loss_fatal)
        return False

    def stored(self, files: FileReader | None = None) -> Iterator[BatchPart]:
        """Yields the stored batches of the range. DataLoss: a part of it was removed, and that is fatal."""
        at = self._wanted.start
        if files is not None:
            at = yield from files.stored(self._client, self._wanted)
        yield from self._from_broker(at)

    def _from_broker(self, at: int) -> Iterator[BatchPart]:
        prefetch = Prefetch(self._client.connector)
        try:
            while at < self._wanted.end:
                fetched = self._fetched(at, prefetch)
                if fetched is None or fetched.next_offset <= at:
                    at = self._after_loss(at, fetched)
                    continue
                self._check_skipped(fetched, at)
                yield from parts_of(fetched.batches, at, self._wanted.end)
                at = fetched.next_offset
        finally:
            prefetch.drop()

    def _asked(self, at: int) -> FetchRequest:
        # Powers of two, because the server caches answers by request; `parts_of` drops what is too much.
        left = 1 << (self._wanted.end - at - 1).bit_length()
        limit = min(LIMIT_MAX_BATCHES, left)
        topic, partition = self._wanted.topic, self._wanted.partition
        return FetchRequest(topic, partition, offset=at, limit=limit, max_bytes=PREFETCH_BYTES)

    def _following(self, at: int) -> FetchRequest | None:
        return self._asked(at) if at < self._wanted.end else None

    def _fetched(self, at: int, prefetch: Prefetch) -> Fetched | None:
        """Returns what the broker has from an offset on, or None if the offset is out of range."""
        try:
            return prefetch.fetch(self._asked(at), self._following)
        except OffsetOutOfRange:
            return None
        except NotFound:
            raise topic_deleted(self._wanted.topic) from None

    def _check_skipped(self, fetched: Fetched, at: int) -> None:
        """DataLoss: the broker passed over damage in the range, and a loss is fatal."""
        for skipped in fetched.skipped:
            first, end = max(skipped[0], at), min(skipped[1], self._wanted.end)
            if first < end:
                pass_over(lost_by_damage(self._key, first, end), is_fatal=self._is_loss_fatal)

    def _after_loss(self, at: int, fetched: Fetched | None) -> int:
        """Returns the offset behind the missing part of the range. DataLoss: a loss is fatal."""
        first = fetched or self._client.fetch(
            self._wanted.topic, self._wanted.partition, limit=1, max_bytes=1
        )
        is_before = at < first.earliest
        if is_before:
            loss = lost_by_retention(self._key, at, first.earliest)
        else:
            loss = lost_by_shrinking(self._key, self._wanted.end, first.latest, is_same=True)
        pass_over(loss, is_fatal=self._is_loss_fatal)
        return min(first.earliest, self._wanted.end) if is_before else self._wanted.end
