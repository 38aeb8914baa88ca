"""Where peers and operators connect, and what they are answered."""

import asyncio
import socket
import ssl
from contextlib import suppress
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


class PeerListener:
    """The listener for peers of a node, with its connections."""

    def __init__(self, membership: "Membership") -> None:
        self._membership = membership
        self._links: set[asyncio.Task[None]] = set()
        self._said = ""
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Link(self._accept), sock=listener, ssl=context
        )

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._links:
            task.cancel()

    def _accept(self, link: Link) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(link))
        self._links.add(task)
        task.add_done_callback(self._links.discard)

    async def _serve(self, link: Link) -> None:
        try:
            await self._answer(link)
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

    async def _answer(self, link: Link) -> None:
        membership = self._membership
        async with asyncio.timeout(FIRST_FRAME_S):
            told: Introduction = await link.expect(Introduction)
        membership.check(told, link)
        link.introduced()
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
            done = await promote(membership, is_forced=operation.is_forced)
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
