"""A connection between two nodes, or of an operator with a node: frames with limits, one after the other.

Both sides first say who they are (`Introduction`). What follows is what the side that dialled came for:

    ask       nothing more, or a Claim, answered with Granted or Refusal; one of a promotion with Granted and Inventory
    follow    the frames of `penstock.replication.frames`
    operate   an Operation, answered with a Report or a Refusal
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

import msgspec

from ...errors import BadRequest, Forbidden, PenstockError, Refused, TooLarge, Unreachable
from ...model import Buffer
from ...replication.frames import PREFIX_BYTES, Frame, Refusal, encode_frame, read_sizes
from ..cluster_settings import split_address

FIRST_FRAME_S = 5.0
DIAL_S = 3.0
# Before a peer has said who it is, and of what it says of itself.
INTRODUCTION_BYTES_MAX = 16 << 10
_READ_BYTES = 1 << 20
_HIGH_WATER_BYTES = 4 << 20


class Introduction(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Who speaks: `role` is leading, following, waiting or operator; `purpose` is ask, follow or operate.

    `http` and `binary` are where it serves clients; `copies` is its cluster.min_isr; `led`: it led in `epoch`.
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
    """What an operator asks: status, promote or hand-over."""

    action: str
    is_forced: bool = False


class Report(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """What an operator is told, as JSON."""

    content: bytes


PeerFrame = Frame | Introduction | Claim | Granted | Operation | Report
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PeerFrame).decode


class Link:
    """One connection. Belongs to the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        writer.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self.bytes_in = self.bytes_out = 0
        self._is_introduced = False

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = self._writer.get_extra_info("peercert")
        return found

    @property
    def host(self) -> str:
        """The address of the other side."""
        name = self._writer.get_extra_info("peername")
        return str(name[0]) if name else "unknown"

    def introduced(self) -> None:
        """The other side is known: from now on it may send what is large."""
        self._is_introduced = True

    def write(self, frame: PeerFrame, *payload: Buffer) -> None:
        """Have a frame sent, without a wait."""
        self.write_parts(encode_frame(frame, *payload))  # type: ignore[arg-type]  # It encodes any struct.

    def write_parts(self, parts: list[Buffer]) -> None:
        self.bytes_out += sum(map(len, parts))
        self._writer.writelines(parts)

    async def drain(self) -> None:
        """Return when the other side has read most of it. Unreachable."""
        try:
            await self._writer.drain()
        except OSError as error:
            raise self._lost(error) from None

    async def send(self, frame: PeerFrame, *payload: Buffer) -> None:
        self.write(frame, *payload)
        await self.drain()

    async def receive(self) -> tuple[PeerFrame, memoryview]:
        """The next frame. Unreachable: the connection has ended. TooLarge, BadRequest: it is none."""
        try:
            sizes = read_sizes(await self._reader.readexactly(PREFIX_BYTES))
            if not self._is_introduced and sum(sizes) > INTRODUCTION_BYTES_MAX:
                raise TooLarge(
                    "the first frame of a peer", found=sum(sizes), limit=INTRODUCTION_BYTES_MAX
                )
            head = await self._reader.readexactly(sizes.head)
            payload = await self._reader.readexactly(sizes.payload) if sizes.payload else b""
        except (asyncio.IncompleteReadError, OSError) as error:
            raise self._lost(error) from None
        self.bytes_in += PREFIX_BYTES + sum(sizes)
        try:
            frame: PeerFrame = _decode(head)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRequest(f"a frame of a peer cannot be read: {error}") from None
        return frame, memoryview(payload)

    async def expect(self, *kinds: type[Any]) -> Any:
        """The next frame, one of these. Refused: the other side says no, with its reason."""
        frame, _ = await self.receive()
        if isinstance(frame, Refusal) and Refusal not in kinds:
            raise PeerRefused(frame)
        if not isinstance(frame, kinds):
            raise BadRequest(f"{type(frame).__name__} of a peer where it is out of place")
        return frame

    def _lost(self, error: BaseException) -> Unreachable:
        reason = getattr(error, "strerror", None) or "the connection has ended"
        return Unreachable(self.host, str(reason))

    async def refuse(self, error: PenstockError, epoch: int = 0) -> None:
        """Say why, and hang up."""
        self.write(Refusal(error.code, str(error), epoch))
        self.close()

    def close(self) -> None:
        self._writer.close()


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
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, limit=_READ_BYTES
            )
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        raise Forbidden(f"the peer at {address} is not of this cluster: {reason}") from None
    except TimeoutError:
        raise Unreachable(address, f"no answer within {DIAL_S:g} s") from None
    except OSError as error:
        raise Unreachable(address, error.strerror or str(error)) from None
    return Link(reader, writer)
