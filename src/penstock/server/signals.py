"""What a broker does on signals."""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType


def delay_reload() -> None:
    """Have a SIGHUP wait until the broker handles it: by default it would end the process during its start."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def end_at_once(tell: Callable[[], None]) -> None:
    """Until `handle_signals`, have SIGTERM and SIGINT call `tell` and end the process with exit code 0.

    For the opening of data, which may take minutes. What it has done until then is what a crash at this moment would
    leave, and the next opening goes on from there.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        tell()
        # Not sys.exit: what is half done must not be written to its end on the way out.
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def handle_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], reload: Callable[[], None]
) -> None:
    """Call `stop` on SIGTERM and SIGINT, and `reload` on SIGHUP, also if that came before."""
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
