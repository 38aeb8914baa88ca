"""What two nodes say to each other: a head in MessagePack, and for some frames bytes beside it.

     0  u32  bytes of the head      at most HEAD_BYTES_MAX
     4  u32  bytes of the payload   at most PAYLOAD_BYTES_MAX
     8  ...  head: a tagged array, one of the frames below
     .  ...  payload: batches as they are stored at the leader, or a piece of a snapshot

Both sizes are compared with their limits before anything is allocated for them. Fields are only added at the end, with
a default. A frame of an unknown tag is refused: levels are compared in the first frame.

    follower                        leader
    Hello                      ->
                               <-   Hello
    Inventory ... (is_last)    ->
                               <-   Parted ... (is_last)
    Reconciled                 ->
                               <-   Opened, Batches, Snapshot, Started: catching up, from files
                               <-   Level: it has all up to a sequence
    Durable                    ->
                               <-   Opened, Batches, Snapshot, Started, Removed, Level, in the order of the appends
    Durable                    ->
                               <-   HandOver: the leader has stopped, and this follower has everything
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ..errors import BadRequest, TooLarge
from ..model import Buffer

LEVEL = 3
"""The format of frames and records that this release speaks."""
HEAD_BYTES_MAX = 1 << 20
# The largest batch that a node stores, and room for its head.
PAYLOAD_BYTES_MAX = 64 << 20
LOGS_A_FRAME = 1000
"""How many logs an Inventory or a Parted has at most: a longer list takes several frames."""
_SIZES = struct.Struct("<II")
PREFIX_BYTES = _SIZES.size


class Sizes(NamedTuple):
    """How long the two parts of a frame are."""

    head: int
    payload: int


class EpochAt(NamedTuple):
    """An epoch and the first offset written in it."""

    epoch: int
    offset: int


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The first frame of both sides.

    `epoch` is the one that a leader leads in, and of a follower the highest that it has promised to. `incarnation` is
    new with each start, `disk_id` with each empty data directory. `role` is "leader" or "follower". `forced_epoch` is
    the last one of the history of this node that was begun by force; 0: none was.
    """

    cluster_id: str
    node: int
    incarnation: int
    disk_id: int
    level: int
    epoch: int
    role: str
    forced_epoch: int = 0


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The last frame before a side hangs up: a stable code, why, and the highest epoch that it knows."""

    code: str
    reason: str
    epoch: int = 0


class LogFacts(msgspec.Struct, frozen=True, array_like=True):
    """A log as one side has it. `path` is its directory; it names the log as long as there is a connection."""

    path: str
    log_id: int
    start: int
    end: int
    epochs: tuple[EpochAt, ...]
    segment_bytes: int = 0
    index_interval_bytes: int = 0


class Inventory(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """All logs of a follower, in one or several frames."""

    logs: tuple[LogFacts, ...]
    is_last: bool = True


class LogParted(msgspec.Struct, frozen=True, array_like=True):
    """What a follower has to do with a log: keep what is below `keep_to`, and go on from there.

    `keep_to` below zero: nothing of it fits; it is set aside, and made anew at the leader's start if the leader has it.
    `number` names the log in later frames of this connection; below zero: the leader has no such log.
    """

    path: str
    number: int
    keep_to: int
    facts: LogFacts | None = None


class Parted(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Where the histories part: for each log of the follower, and for each that it has not."""

    logs: tuple[LogParted, ...]
    is_last: bool = True


class Reconciled(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The follower has cut what did not fit, and these are its ends by number of the log, all of it durable.

    `snapshots` are those that it has, by number of the log and offset: they are not sent again.
    """

    ends: tuple[tuple[int, int], ...]
    snapshots: tuple[tuple[int, int], ...] = ()


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The leader has a log that it had not before, or writes an old one in a new epoch."""

    number: int
    sequence: int
    facts: LogFacts


class Batches(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Whole batches of one log that follow each other, beside this head.

    `sequence` is that of the last of them; below zero while catching up, where logs come one after the other.
    """

    number: int
    epoch: int
    sequence: int
    committed: int


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A piece of a committed snapshot of the journal of log `number`; with the last piece it is installed."""

    number: int
    offset: int
    position: int
    total: int
    sequence: int = -1


class Started(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A log begins here now: segments below it may go."""

    number: int
    start: int
    sequence: int = -1


class Removed(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The files of a log were removed, as meta has said before in the same stream."""

    number: int
    sequence: int


class Level(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The follower has been sent all up to `sequence`; and how far the leader knows it to be committed."""

    epoch: int
    sequence: int
    committed: int


class Durable(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The follower has synced all up to `sequence`, and this many bytes of payload since the connection began."""

    epoch: int
    sequence: int
    received_bytes: int


class HandOver(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The leader of `epoch` answers no client any more, and this follower has everything: it may lead without force."""

    epoch: int
    sequence: int


Frame = (
    Hello
    | Refusal
    | Inventory
    | Parted
    | Reconciled
    | Opened
    | Batches
    | Snapshot
    | Started
    | Removed
    | Level
    | Durable
    | HandOver
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


def encode_frame(frame: Frame, *payload: Buffer) -> list[Buffer]:
    """Returns the parts of a frame, to be sent one after the other."""
    head, size = _encode(frame), sum(map(len, payload))
    _require(len(head), size)
    return [_SIZES.pack(len(head), size) + head, *payload]


def read_sizes(prefix: Buffer) -> Sizes:
    """Returns how many bytes of head and payload follow these first 8. TooLarge: a side does not keep to the limits."""
    head, payload = _SIZES.unpack(prefix)
    _require(head, payload)
    return Sizes(head, payload)


def _require(head: int, payload: int) -> None:
    if head > HEAD_BYTES_MAX:
        raise TooLarge("the head of a frame", found=head, limit=HEAD_BYTES_MAX)
    if payload > PAYLOAD_BYTES_MAX:
        raise TooLarge("the payload of a frame", found=payload, limit=PAYLOAD_BYTES_MAX)


def decode_head(head: Buffer) -> Frame:
    """Returns the frame with these bytes. BadRequest: they are none."""
    try:
        frame: Frame = _decode(head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"a frame of a peer cannot be read: {error}") from None
    return frame


def in_pages(logs: Sequence[LogFacts]) -> Iterator[Inventory]:
    """The frames of an inventory, at least one."""
    for first in range(0, max(len(logs), 1), LOGS_A_FRAME):
        some = tuple(logs[first : first + LOGS_A_FRAME])
        yield Inventory(some, is_last=first + LOGS_A_FRAME >= len(logs))


F = TypeVar("F")


class FrameReader(Generic[F]):
    """Cuts a stream of bytes into frames. Keeps no more than one frame and what was fed with its end.

    `bytes_max` is a limit besides those of all frames, which may be raised between two of them.
    """

    def __init__(
        self, decode: Callable[[Buffer], F], bytes_max: int = HEAD_BYTES_MAX + PAYLOAD_BYTES_MAX
    ) -> None:
        self.bytes_max = bytes_max
        self._decode, self._pieces = decode, bytearray()

    def feed(self, data: Buffer) -> Iterator[tuple[F, memoryview]]:
        """Yields the frames that are whole now. TooLarge, BadRequest: the connection cannot go on."""
        self._pieces += data
        position, pieces = 0, self._pieces
        while len(pieces) - position >= PREFIX_BYTES:
            sizes = read_sizes(pieces[position : position + PREFIX_BYTES])
            if sum(sizes) > self.bytes_max:
                raise TooLarge("a frame of a peer", found=sum(sizes), limit=self.bytes_max)
            payload_at = position + PREFIX_BYTES + sizes.head
            end = payload_at + sizes.payload
            if len(pieces) < end:
                break
            with memoryview(pieces) as view:
                frame = self._decode(view[position + PREFIX_BYTES : payload_at])
                payload = bytes(view[payload_at:end])
            yield frame, memoryview(payload)
            position = end
        del pieces[:position]
