"""What a broker does on signals."""

import asyncio
import signal
from collections.abc import Callable


def delay_reload() -> None:
    """Have a SIGHUP wait until the broker handles it: by default it would end the process during its start."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def handle_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], reload: Callable[[], None]
) -> None:
    """Call `stop` on SIGTERM and SIGINT, and `reload` on SIGHUP, also if that came before."""
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
