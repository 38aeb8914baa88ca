"""Stories that have to be short: a lease that ends, a delay that is over, a session that is missed."""

from collections.abc import Callable
from contextlib import suppress

from penstock.errors import PenstockError

# A machine under load stops for seconds; one that stops for longer than the last of them tells nothing any more.
LENGTHS_S = (2, 10, 30)


def despite_stalls(story: Callable[[int], None], lengths_s: tuple[int, ...] = LENGTHS_S) -> None:
    """Run a story with a short length, and only if it fails with longer ones.

    A machine that stalls outlasts a short lease, which is not what the story is about; a bug fails with every length.
    """
    for one in lengths_s[:-1]:
        # A connection, a member or a lease that ended too early is also told by an error.
        with suppress(AssertionError, PenstockError, OSError):
            return story(one)
    return story(lengths_s[-1])
