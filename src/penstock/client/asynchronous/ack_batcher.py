"""Sends the answers of a consumer to the server."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...api.answers import Answer, Kind, LeaseAnswer, LeaseOutcome
from ...errors import PenstockError, StaleReceipt, Unavailable, Unreachable
from ..ack_batcher import AnswerBuffer
from ..poll import refusals_of
from .connector import AsyncConnector
from .io import Lock

_LOG = logging.getLogger("penstock.client")


def _log(error: PenstockError) -> None:
    _LOG.warning("an answer was not taken: %s", error)


class AsyncAckBatcher:
    """Sends one request at a time, so that the server gets answers in the order in which they were given."""

    def __init__(
        self,
        connector: AsyncConnector,
        buffer: AnswerBuffer,
        on_error: Callable[[PenstockError], Any] | None,
    ) -> None:
        self._connector, self._buffer = connector, buffer
        self._on_error = on_error or _log
        self._lock = Lock()
        # Whether the server may have had the answers before: then a nack or reject whose lease is over is no error.
        self._is_repeat = False

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
                Answer(answers), may_repeat=True, on_failure=self._note_failure
            )
        except (Unavailable, OSError):
            self._buffer.put_back(answers)
            raise
        except PenstockError as error:
            # The server will never take them; their messages come back when the leases are over.
            self._on_error(error)
            return
        except BaseException:
            self._is_repeat = True
            self._buffer.put_back(answers)
            raise
        self._report(answers, reply.value)
        self._is_repeat = False

    def _note_failure(self, error: PenstockError) -> None:
        self._is_repeat |= isinstance(error, Unreachable) and error.is_sent

    def _report(
        self, answers: list[LeaseAnswer], outcomes: list[LeaseOutcome | PenstockError]
    ) -> None:
        for answer, outcome in zip(answers, outcomes, strict=True):
            # An ack that the server had before is no refusal: one whose lease is over was never taken.
            is_known = self._is_repeat and answer.kind is not Kind.ACK
            for error in refusals_of([answer], [outcome]):
                self._buffer.drop_stale(error)
                # A message that was only given back needs no report.
                is_quiet = is_known and isinstance(error, StaleReceipt)
                if not is_quiet and answer.kind is not Kind.RELEASE:
                    self._on_error(error)
