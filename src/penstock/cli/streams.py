"""The three streams that every program has, also if whoever started it closed some of them."""

import os
import sys

_STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))


def complete_streams() -> None:
    """Put nothing in the place of a stream that was closed (`>&-`).

    Otherwise the next file that is opened gets its number, and what is printed goes there: into a log, or to a server.
    """
    for number, (name, flags) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, flags)
            os.set_inheritable(nowhere, nowhere == number)
            how = "r" if flags == os.O_RDONLY else "w"
            setattr(sys, name, open(nowhere, how, encoding="utf-8", closefd=False))  # noqa: SIM115 - for as long as we live
