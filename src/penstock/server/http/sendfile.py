"""An answer of HTTP whose body lies in a file, and the task that waits until the client has it."""

import asyncio

from ...api.fetch import FileRange
from ..file_sender import FileSender


class FileTransfer:
    """The head of an answer, and then its body, which lies in a file. `end` has to follow, whatever happens."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: int, head: bytes, body: FileRange
    ) -> None:
        self._sent: asyncio.Future[bool] = loop.create_future()
        self._sender = FileSender(loop, socket, head, body, self._settle)
        # What the client had not read yet at the last look.
        self._unsent = 0

    def begin(self) -> bool:
        """Send what there is room for; whether that was all. OSError: the client left, or the file is shorter."""
        is_whole = self._sender.begin()
        if not is_whole:
            self._unsent = self._sender.unsent_bytes()
        return is_whole

    async def rest(self) -> bool:
        """Whether what `begin` left was sent. CancelledError after `end`."""
        return await self._sent

    def _settle(self, is_whole: bool) -> None:
        if not self._sent.done():
            self._sent.set_result(is_whole)

    def has_moved(self) -> bool:
        """Whether the client has taken some since it was asked last, or since `begin`.

        The system takes more of the file only when a third of its room is free, so what it has counts as not taken.
        """
        before, self._unsent = self._unsent, self._sender.unsent_bytes()
        return self._unsent < before

    def end(self) -> None:
        """Send nothing more. A task that waits in `rest` is cancelled."""
        self._sender.end()
        self._sent.cancel()
