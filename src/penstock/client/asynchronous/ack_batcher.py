"""Brings what a consumer has said to the server."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...api.answers import Kind, LeaseAnswer
from ...errors import PenstockError, StaleReceipt, Unavailable, Unreachable
from ..ack_batcher import AnswerBuffer, AnswersReply, send_answers
from ..settings import chance
from .io import Lock, sleep
from .pool import AsyncPool

_LOG = logging.getLogger("penstock.client")


def _log(error: PenstockError) -> None:
    _LOG.warning("an answer was not taken: %s", error)


class AsyncAckBatcher:
    """One request at a time, so that things are carried out in the order in which they were said."""

    def __init__(
        self,
        pool: AsyncPool,
        answers: AnswerBuffer,
        on_error: Callable[[PenstockError], Any] | None,
    ) -> None:
        self._pool, self._answers = pool, answers
        self._on_error = on_error or _log
        self._turn = Lock()
        # Whether something may have reached the server before: then it is no news that a lease is over.
        self._is_repeat = False

    async def send(self) -> None:
        """Return when the server has everything that was said. Unavailable: it has not, and it is kept."""
        await self._turn.acquire()
        try:
            while said := self._answers.take():
                await self._bring(said)
        finally:
            self._turn.release()

    async def try_to_send(self) -> None:
        """The same, in the background: what fails for now is tried again the next time."""
        with suppress(Unavailable):
            await self.send()

    async def _bring(self, said: list[LeaseAnswer]) -> None:
        try:
            taken = await self._with_retries(said)
        except (Unavailable, OSError):
            self._answers.put_back(said)
            raise
        except PenstockError as error:
            # It will never be taken; what was lent comes back by itself.
            self._on_error(error)
            return
        except BaseException:
            self._is_repeat = True
            self._answers.put_back(said)
            raise
        self._report(said, taken)
        self._is_repeat = False

    async def _with_retries(self, said: list[LeaseAnswer]) -> AnswersReply:
        call, tries = send_answers(said), 0
        while True:
            tries += 1
            try:
                return await self._pool.run_once(call)
            except PenstockError as error:
                self._is_repeat |= isinstance(error, Unreachable) and error.is_sent
                retry = self._pool.settings.retry
                wait_s = retry.wait_s(error, tries, chance(), is_repeatable=True)
                if wait_s is None:
                    raise
            await sleep(wait_s)

    def _report(self, said: list[LeaseAnswer], taken: AnswersReply) -> None:
        if not taken.failed:
            return
        # Nobody misses what was only to be given back.
        given_back = {
            (one.topic, one.partition, offset)
            for one in said
            if one.kind is Kind.RELEASE
            for offset in one.offsets
        }
        for error in taken.errors():
            self._answers.drop_stale(error)
            where = tuple(error.fields.get(name) for name in ("topic", "partition", "offset"))
            is_known = isinstance(error, StaleReceipt) and self._is_repeat
            if not is_known and where not in given_back:
                self._on_error(error)
