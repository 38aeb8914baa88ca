"""Where peers and operators connect, and what they are answered."""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import msgspec

from ...errors import BadRequest, PenstockError, Unreachable
from ...replication.frames import in_pages
from .election import promote
from .link import FIRST_FRAME_S, Claim, Granted, Introduction, Link, Operation, Report
from .operator_requests import OPERATOR
from .promotion import Role

if TYPE_CHECKING:
    from .membership import Membership


# Peers are a few, and each has a handful of connections; those that never say who they are must not be more than these.
STRANGERS_PER_ADDRESS_MAX = 16
STRANGERS_MAX = 256
_ACCEPT_AGAIN_S = 1.0
_BACKLOG = 100


class Strangers:
    """Connections by address that have not said yet who they are. Bounded, of an address and in all."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def admit(self, host: str) -> bool:
        """Count one more of an address; False: there are too many already."""
        is_room = self._counts[host] < STRANGERS_PER_ADDRESS_MAX
        if not is_room or self._counts.total() >= STRANGERS_MAX:
            return False
        self._counts[host] += 1
        return True

    def forget(self, host: str) -> None:
        """One of an address is known by now, or gone."""
        self._counts[host] -= 1
        if not self._counts[host]:
            del self._counts[host]


class PeerListener:
    """The listener for peers of a node, with its connections."""

    def __init__(self, membership: "Membership") -> None:
        self._membership = membership
        self._strangers = Strangers()
        self._tasks: set[asyncio.Task[None]] = set()
        # Those that no transport has yet.
        self._accepted: set[socket.socket] = set()
        self._said = ""
        self._listener: socket.socket | None = None
        self._context: ssl.SSLContext | None = None
        self._again: asyncio.TimerHandle | None = None

    def start(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections from now on. With a context a connection begins with TLS, and in time, or it ends."""
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._listener, self._context = listener, context
        self._wait()

    async def stop(self) -> None:
        """Hang up, and listen no more."""
        if self._again is not None:
            self._again.cancel()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for connection in self._accepted:
            connection.close()

    def _wait(self) -> None:
        assert self._listener is not None
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Take one connection: a flood of them leaves the loop its turns."""
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        try:
            connection, address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            self._say(f"no peer can connect: {error.strerror}")
            loop.remove_reader(self._listener)
            self._again = loop.call_later(_ACCEPT_AGAIN_S, self._wait)
            return
        host = str(address[0])
        if not self._strangers.admit(host):
            self._say(f"peer {host} refused: too many connections do not say who they are")
            connection.close()
            return
        connection.setblocking(False)
        self._accepted.add(connection)
        task = loop.create_task(self._meet(connection, host, self._context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _meet(
        self, connection: socket.socket, host: str, context: ssl.SSLContext | None
    ) -> None:
        """Serve a connection, from the first byte of TLS on. It is a stranger's until it has said who it is."""
        with ExitStack() as known:
            known.callback(self._strangers.forget, host)
            # Not the protocol that is returned: with TLS that is uvloop's own.
            link = Link()
            try:
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: link,
                    connection,
                    ssl=context,
                    ssl_handshake_timeout=None if context is None else FIRST_FRAME_S,
                )
            except OSError as error:
                # Of TLS, or the other side has hung up, or did not begin in time.
                self._accepted.discard(connection)
                self._say(f"peer {host} refused: {error.strerror or error}")
                return
            self._accepted.discard(connection)
            await self._serve(link, known.close)

    async def _serve(self, link: Link, become_known: Callable[[], None]) -> None:
        try:
            await self._answer(link, become_known)
        except Unreachable:
            pass  # The other side has hung up.
        except PenstockError as error:
            self._say(f"peer {link.host} refused: {error}")
            link.refuse(error, self._membership.epoch)
        except TimeoutError:
            self._say(f"peer {link.host} refused: it does not say who it is")
        finally:
            link.close()

    def _say(self, text: str) -> None:
        """A peer comes again and again: one line is enough."""
        if text != self._said:
            self._said = text
            self._membership.logger.warning("%s", text)

    async def _answer(self, link: Link, become_known: Callable[[], None]) -> None:
        membership = self._membership
        async with asyncio.timeout(FIRST_FRAME_S):
            told: Introduction = await link.expect(Introduction)
        membership.check(told, link)
        link.introduced()
        become_known()
        link.send(membership.introduction(told.purpose))
        if told.role == OPERATOR:
            await self._operate(link, told.node)
            return
        membership.heard(membership.peer(told, link, ""))
        if told.purpose == "follow":
            if membership.role is not Role.LEADING or membership.serve_follower is None:
                raise membership.refusal()
            await membership.serve_follower(link, told)
        else:
            with suppress(Unreachable):
                await self._grant(link, await link.expect(Claim), told)

    async def _grant(self, link: Link, claim: Claim, told: Introduction) -> None:
        """Say what this node has promised; for a promotion also what it has. Fenced, Unavailable."""
        if not claim.is_promotion:
            self._membership.grant(claim, told)
            link.send(Granted(claim.epoch))
            return
        asked = await self._membership.promise_to(claim.epoch)
        link.send(asked.said)
        for page in in_pages([*asked.logs.values()]):
            link.send(page)

    async def _operate(self, link: Link, node: int) -> None:
        membership = self._membership
        operation: Operation = await link.expect(Operation)
        done: dict[str, object]
        if operation.action == "promote":
            done = await promote(
                membership, is_forced=operation.is_forced, is_alone=operation.is_alone
            )
            where = f"node {membership.node}, asked with the certificate of node {node}"
            membership.audit("promote", where)
        elif operation.action == "hand-over":
            await membership.require_leading()(node)
            done = membership.report()
        elif operation.action == "status":
            done = membership.report()
        else:
            raise BadRequest(f"there is no operation {operation.action[:40]!r}")
        link.send(Report(msgspec.json.encode(done)))
