"""A connection between two nodes, or of an operator with a node: frames with limits, one after the other.

Both sides first say who they are (`Introduction`). What follows is what the side that dialled came for:

    ask       nothing more, or a Claim, answered with Granted or Refusal; one of a promotion with Granted and Inventory
    follow    the frames of `penstock.replication.frames`
    operate   an Operation, answered with a Report or a Refusal
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from ...errors import BadRequest, Forbidden, PenstockError, Refused, Unreachable
from ...model import Buffer
from ...replication.frames import (
    HEAD_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Frame,
    FrameReader,
    Refusal,
    encode_frame,
)
from ..cluster_settings import split_address

FIRST_FRAME_S = 5.0
# A node that is there says who it is in some milliseconds, and a leader is heard four times a second.
ASK_S = 1.0
# As often each side of a stream hears that the other one is there.
HEARTBEAT_S = 0.25
DIAL_S = 3.0
# Before a peer has said who it is, and of what it says of itself.
INTRODUCTION_BYTES_MAX = 16 << 10
# As many frames may wait to be taken. A peer that keeps to the order of frames never has more under way.
_UNTAKEN_MAX = 16
_JOINED_BYTES_MAX = 64 << 10
_HIGH_WATER_BYTES = 4 << 20


class Introduction(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Who speaks: `role` is leading, following, waiting or operator; `purpose` is ask, follow or operate.

    `http` and `binary` are where it serves clients; `copies` is its cluster.min_isr, or 1 while it leads alone; `led`:
    it led in `epoch`. `forced_epoch` is the last epoch of its history that was begun by force; `begins`: it is in no
    cluster, and would lead a new one.
    """

    cluster: str
    cluster_id: str
    node: int
    epoch: int
    role: str
    purpose: str = "ask"
    http: str = ""
    binary: str = ""
    copies: int = 0
    led: bool = False
    forced_epoch: int = 0
    begins: bool = False


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=65):
    """A node asks to lead in this epoch, while no other does; for a promotion it has to know what the other has."""

    epoch: int
    copies: int
    is_promotion: bool = False


class Granted(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """The other has written down that it follows nothing before this epoch.

    To a promotion it also says of which leader it has what it has: `leader_epoch`, whether it had everything of that
    one once, and its min_isr; and whether no log of it is known to lack what was there.
    """

    epoch: int
    leader_epoch: int = 0
    is_level: bool = False
    copies: int = 0
    is_whole: bool = False


class Operation(msgspec.Struct, frozen=True, array_like=True, tag=67):
    """What an operator asks: status, promote or hand-over. `is_alone`: to acknowledge without the others until they are
    back."""

    action: str
    is_forced: bool = False
    is_alone: bool = False


class Report(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """What an operator is told, as JSON."""

    content: bytes


class Alive(msgspec.Struct, frozen=True, array_like=True, tag=69):
    """The event loop of the other side runs, whatever its disk does. It is for the silence alone."""


PeerFrame = Frame | Introduction | Claim | Granted | Operation | Report | Alive
Take = Callable[[PeerFrame, memoryview], None]
_decode = msgspec.msgpack.Decoder(PeerFrame).decode


def _decode_frame(head: Buffer) -> PeerFrame:
    try:
        frame: PeerFrame = _decode(head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"a frame of a peer cannot be read: {error}") from None
    return frame


def _ignore() -> None:
    return


class Link(asyncio.Protocol):
    """One connection. Belongs to the event loop."""

    def __init__(self) -> None:
        self._frames: FrameReader[PeerFrame] = FrameReader(_decode_frame, INTRODUCTION_BYTES_MAX)
        # Frames that nothing has taken yet, and who waits for one.
        self._received: deque[tuple[PeerFrame, memoryview]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._take: Take | None = None
        # Why there will be no more frames.
        self._error: PenstockError | None = None
        self.heard_at = 0.0
        self.bytes_in = self.bytes_out = 0
        # Whether the other side does not read as fast as this one writes; then who is told that it does again.
        self.is_full = False
        self.on_room: Callable[[], None] = _ignore

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # Streams have both directions.
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        # Kept: a transport of TLS that has ended says None, or fails if it is closed once more.
        name = transport.get_extra_info("peername")
        # The address of the other side.
        self.host = str(name[0]) if name else "unknown"
        self.certificate: Mapping[str, Any] | None = transport.get_extra_info("peercert")
        self.heard_at = time.monotonic()

    def data_received(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        self.bytes_in += len(data)
        if self._error is not None:
            return
        try:
            for frame, payload in self._frames.feed(data):
                if isinstance(frame, Alive):
                    continue
                if self._take is not None:
                    self._take(frame, payload)
                else:
                    self._received.append((frame, payload))
            if len(self._received) > _UNTAKEN_MAX:
                raise BadRequest("a peer sent more than it was asked for")
        except PenstockError as error:
            self._end(error.fresh())
        if self._received:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        reason = getattr(error, "strerror", None) or "the connection has ended"
        self._end(Unreachable(self.host, str(reason)))

    def _end(self, error: PenstockError) -> None:
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self.on_room()

    def introduced(self) -> None:
        """The other side is known: from now on it may send what is large."""
        self._frames.bytes_max = HEAD_BYTES_MAX + PAYLOAD_BYTES_MAX

    def send(self, frame: PeerFrame, *payload: Buffer) -> None:
        """Have a frame sent, without a wait."""
        self.write_parts(encode_frame(frame, *payload))  # type: ignore[arg-type]  # It encodes any struct.

    def write_parts(self, parts: Sequence[Buffer]) -> None:
        """Have a frame sent, without a wait. Nothing happens once the connection has ended: `receive` says so."""
        if self._transport.is_closing():
            return
        size = sum(map(len, parts))
        self.bytes_out += size
        if size <= _JOINED_BYTES_MAX:
            # Each part would be a record of TLS, and small ones are cheaper to copy.
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    async def receive(self) -> tuple[PeerFrame, memoryview]:
        """The next frame. Unreachable: the connection has ended. TooLarge, BadRequest: it is none."""
        while not self._received:
            if self._error is not None:
                raise self._error.fresh()
            await self._woken(None)
        return self._received.popleft()

    async def _woken(self, seconds: float | None) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._waiter,), timeout=seconds)

    async def deliver(self, take: Take, silence_s: float) -> NoReturn:
        """Hand every frame to a function as soon as it is there. Raises what that raises, and why there are no more.

        Unreachable: the connection has ended, or nothing was heard for so long.
        """
        while self._received and self._error is None:
            take(*self._received.popleft())
        self._take = take
        while self._error is None:
            quiet_s = time.monotonic() - self.heard_at
            if quiet_s >= silence_s:
                raise Unreachable(self.host, f"nothing heard for {silence_s:g} s")
            await self._woken(silence_s - quiet_s)
        raise self._error.fresh()

    async def expect(self, *kinds: type[Any]) -> Any:
        """The next frame, one of these. Refused: the other side says no, with its reason."""
        frame, _ = await self.receive()
        if isinstance(frame, Refusal) and Refusal not in kinds:
            raise PeerRefused(frame)
        if not isinstance(frame, kinds):
            raise BadRequest(f"{type(frame).__name__} of a peer where it is out of place")
        return frame

    def refuse(self, error: PenstockError, epoch: int = 0) -> None:
        """Say why, and hang up."""
        self.send(Refusal(error.code, str(error), epoch))
        self.close()

    def close(self) -> None:
        self._transport.close()


class PeerRefused(Refused):
    """The other node says no."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason, code=refusal.code, epoch=refusal.epoch)
        self.refusal = refusal


async def dial(address: str, context: ssl.SSLContext | None) -> Link:
    """A connection with a node. Unreachable; Forbidden: one side does not take the other's certificate."""
    host, port = split_address(address)
    try:
        async with asyncio.timeout(DIAL_S):
            _, link = await asyncio.get_running_loop().create_connection(
                Link, host, port, ssl=context
            )
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        raise Forbidden(f"the peer at {address} is not of this cluster: {reason}") from None
    except TimeoutError:
        raise Unreachable(address, f"no answer within {DIAL_S:g} s") from None
    except OSError as error:
        raise Unreachable(address, error.strerror or str(error)) from None
    return link
