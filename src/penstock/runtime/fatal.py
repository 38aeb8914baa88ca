"""The end of a process that cannot be trusted any more."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from ..errors import Fatal, PenstockError

EXIT_CODE = (
    70  # EX_SOFTWARE of sysexits.h: a supervisor can tell it from a crash and from a refusal.
)
# A full pipe blocks a thread that writes to it, and the end of the process may not wait for a reader.
_LAST_WORDS_S = 0.5


def exit_process(error: BaseException) -> None:
    """Say why on stderr and end the process, whatever its threads are doing. Never returns."""
    try:
        speaker = Thread(target=_say, args=(error,), daemon=True)
        speaker.start()
        speaker.join(_LAST_WORDS_S)
    finally:
        # Not sys.exit: that runs handlers and waits for threads, and one of them may hang on the failed disk.
        os._exit(EXIT_CODE)


@contextmanager
def fatal_ends_process() -> Iterator[None]:
    """For the broker's own writes, which no committer guards: a failed disk ends the process."""
    try:
        yield
    except Fatal as error:
        exit_process(error)


def _say(error: BaseException) -> None:
    if isinstance(error, PenstockError):
        text = f"penstock: {' '.join(str(error).split())}; the process stops\n"
    else:
        text = "".join(traceback.format_exception(error))
    os.write(2, text.encode(errors="backslashreplace"))
