"""Reading a whole topic, partition by partition: where each one is, and which is next. No I/O."""

from collections import deque
from dataclasses import dataclass

from ..api.arguments import whole_number
from ..errors import NotFound
from ..model import Message
from .calls import Moment
from .fetch import Fetched
from .options import FetchOptions
from .topics import Topic

_FETCH_BYTES = 4 << 20
# While other partitions may have something, one that is at its end is not waited for long.
_WAIT_S_SHARED = 0.25
_WAIT_S_ALONE = 20.0


@dataclass(slots=True)
class PartitionReader:
    """One partition. `end` is where it stops; None: never."""

    partition: int
    offset: int | None
    from_time: Moment | None
    end: int | None
    wait_s: float = 0.0

    def asked(self) -> FetchOptions:
        if self.from_time is not None:
            return {"from_time": self.from_time, "max_bytes": _FETCH_BYTES, "timeout": self.wait_s}
        return {"offset": self.offset, "max_bytes": _FETCH_BYTES, "timeout": self.wait_s}

    def takes(self, message: Message) -> bool:
        return self.end is None or message.offset < self.end

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.offset is not None and self.offset >= self.end


class TopicReader:
    """All partitions, in turns."""

    def __init__(self, places: list[PartitionReader]) -> None:
        self._waiting = deque(one for one in places if not one.is_done)
        self._silent = 0

    def next(self) -> PartitionReader | None:
        """The partition to read from now; None when all are done."""
        if not self._waiting:
            return None
        first = self._waiting[0]
        if first.end is None:
            # Only when a whole round brought nothing is it worth waiting.
            is_silent = self._silent >= len(self._waiting)
            alone = _WAIT_S_ALONE if len(self._waiting) == 1 else _WAIT_S_SHARED
            first.wait_s = alone if is_silent else 0.0
        return first

    def went_to(self, fetched: Fetched) -> None:
        """Take note of what the partition from `next` gave."""
        first = self._waiting.popleft()
        first.offset, first.from_time = fetched.next_offset, None
        self._silent = 0 if fetched else self._silent + 1
        if not fetched and first.end is not None:
            return  # Retention took the rest, or there was nothing from that time on.
        if not first.is_done:
            self._waiting.append(first)


def topic_reader(
    topic: Topic, start: Moment, partition: int | None, *, is_followed: bool
) -> TopicReader:
    """Where to begin on every partition, or on one."""
    if partition is not None and not whole_number("partition", partition, 0) < topic.partitions:
        raise NotFound("partition", f"{topic.name}/{partition}")
    if isinstance(start, int):
        whole_number("the offset to start from", start, 0)
    chosen = range(topic.partitions) if partition is None else [partition]
    return TopicReader([_place(topic, start, one, is_followed=is_followed) for one in chosen])


def _place(topic: Topic, start: Moment, partition: int, *, is_followed: bool) -> PartitionReader:
    ends = topic.ends(partition)
    end = None if is_followed else ends.latest
    if start == "earliest":
        return PartitionReader(partition, ends.earliest, None, end)
    if start == "latest":
        return PartitionReader(partition, ends.latest, None, end)
    if isinstance(start, int):
        return PartitionReader(partition, min(max(start, ends.earliest), ends.latest), None, end)
    return PartitionReader(partition, None, start, end)
