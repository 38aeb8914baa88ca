"""How errors of a query reach its user: Spark puts what a Python process of it raised into the error of the query."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import PenstockError, Unreachable

# Spark sets the first one in all its Python processes, and in those reads the second when it reports an error.
_SPARKS_PROCESS, _HIDES_TRACEBACK = "SPARK_BUFFER_SIZE", "SPARK_HIDE_TRACEBACK"
_WHEN_UNREACHABLE = (
    "; is the broker running? When it is, start the query again: a stream goes on with this batch"
)


def text_with_advice(error: PenstockError) -> str:
    """Returns what an error says, and what to do if the broker gave no answer."""
    return f"{error}{_WHEN_UNREACHABLE if isinstance(error, Unreachable) else ''}"


@contextmanager
def brief_errors(*, is_query: bool = True) -> Iterator[None]:
    """Inside, or in a function that it decorates, a PenstockError gets to the user as one line, without a traceback.

    Other errors are bugs, of which the traceback is wanted. `is_query`: the user is told what to do with the query.
    """
    try:
        yield
    except PenstockError as error:
        if is_query:
            error.args = (text_with_advice(error),)
        if _SPARKS_PROCESS in os.environ:
            # The process ends with this error, so no other error is without its traceback.
            os.environ[_HIDES_TRACEBACK] = "1"
        raise
