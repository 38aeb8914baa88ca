# Made from ../asynchronous/ack_batcher.py by tools/unasync.py; change that one.
"""Sends the answers of a consumer to the server."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...api.answers import Answer, Kind, LeaseAnswer
from ...errors import PenstockError, StaleReceipt, Unavailable, Unreachable
from ..ack_batcher import AnswerBuffer
from ..poll import refusals_of
from .connector import Connector
from .io import Lock

_LOG = logging.getLogger("penstock.client")


def _log(error: PenstockError) -> None:
    _LOG.warning("an answer was not taken: %s", error)


class AckBatcher:
    """Sends one request at a time, so that the server gets answers in the order in which they were given."""

    def __init__(
        self,
        connector: Connector,
        buffer: AnswerBuffer,
        on_error: Callable[[PenstockError], Any] | None,
    ) -> None:
        self._connector, self._buffer = connector, buffer
        self._on_error = on_error or _log
        self._lock = Lock()
        # Whether the server may have had the answers before: then a lease that is over is no error.
        self._is_repeat = False

    def send(self) -> None:
        """Return when the server has every answer. Unavailable: it has not, and they are kept."""
        self._lock.acquire()
        try:
            while answers := self._buffer.take():
                self._send_batch(answers)
        finally:
            self._lock.release()

    def try_to_send(self) -> None:
        """Send answers in the background: those that fail for now are kept for the next time."""
        with suppress(Unavailable):
            self.send()

    def _send_batch(self, answers: list[LeaseAnswer]) -> None:
        try:
            reply = self._connector.execute(
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
        self._report(answers, refusals_of(answers, reply.value))
        self._is_repeat = False

    def _note_failure(self, error: PenstockError) -> None:
        self._is_repeat |= isinstance(error, Unreachable) and error.is_sent

    def _report(self, answers: list[LeaseAnswer], refusals: list[PenstockError]) -> None:
        if not refusals:
            return
        # A message that was only given back needs no report.
        given_back = {
            (one.topic, one.partition, offset)
            for one in answers
            if one.kind is Kind.RELEASE
            for offset in one.offsets
        }
        for error in refusals:
            self._buffer.drop_stale(error)
            where = tuple(error.fields.get(name) for name in ("topic", "partition", "offset"))
            is_known = isinstance(error, StaleReceipt) and self._is_repeat
            if not is_known and where not in given_back:
                self._on_error(error)
