"""Sends the answers of a consumer to the server."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...api.answers import Answer, LeaseAnswer
from ...errors import PenstockError, Unavailable
from ..ack_batcher import AnswerBuffer, AnswerReports
from ..forks import note_made
from .connector import AsyncConnector
from .io import Lock


class AsyncAckBatcher:
    """Sends one request at a time, so that the server gets answers in the order in which they were given."""

    def __init__(
        self,
        connector: AsyncConnector,
        buffer: AnswerBuffer,
        on_error: Callable[[PenstockError], Any] | None,
    ) -> None:
        self._connector, self._buffer = connector, buffer
        self._reports = AnswerReports(buffer, on_error)
        self._lock = Lock()
        note_made(self)

    def leave_to_parent(self, _reason: str) -> None:
        """After a fork: the connector refuses, and threads of the parent may hold the locks of before."""
        self._lock = Lock()
        self._buffer.leave_to_parent()

    async def send(self) -> None:
        """Return when the server has every answer. Unavailable: it has not, and they are kept."""
        await self._lock.acquire()
        try:
            while answers := self._buffer.take():
                await self._send_batch(answers)
        finally:
            self._lock.release()

    async def try_to_send(self) -> None:
        """Send answers in the background: those that fail for now are kept for the next time."""
        with suppress(Unavailable):
            await self.send()

    async def _send_batch(self, answers: list[LeaseAnswer]) -> None:
        try:
            reply = await self._connector.execute(
                Answer(answers), may_repeat=True, on_failure=self._reports.note_failure
            )
        except (Unavailable, OSError):
            self._buffer.put_back(answers)
            raise
        except PenstockError as error:
            # The server will never take them; their messages come back when the leases are over.
            self._reports.on_error(error)
            return
        except BaseException:
            self._reports.is_repeat = True
            self._buffer.put_back(answers)
            raise
        self._reports.report(answers, reply.value)
