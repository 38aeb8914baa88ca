"""Translates errors of Spark: one line that says what is wrong, as Refused or Unavailable."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import dropwhile
from typing import TYPE_CHECKING

from ...errors import PenstockError, Refused, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REASON_CHARACTERS_MAX = 500
# How Spark names one of our errors: `penstock.errors.requests.NotFound: there is no topic orders`, on a line of its own
# below a traceback, or behind what Spark failed to do.
_OURS = re.compile(
    r"(?:^|PythonException: |\[PYTHON_\w+\] [^:]*: )(penstock\.errors\.(?:\w+\.)*(\w+).*)"
)
# The last line of a Python traceback. Java's have packages before the class.
_RAISED = re.compile(r"[A-Z]\w*(Error|Exception|Warning|Interrupt|Exit)(: |$)")


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Inside, an error of Spark becomes Refused or Unavailable: `with spark_errors("transform paid"): ...`."""
    try:
        yield
    except Exception as error:
        if is_spark_error(error):
            raise translate(what, error) from error
        raise


def is_spark_error(error: Exception) -> bool:
    """Whether an error comes from Spark, or from py4j, by which Python talks to the JVM."""
    from pyspark.errors import PySparkException

    is_known = isinstance(error, PySparkException | ConnectionError | EOFError)
    return is_known or type(error).__module__.startswith("py4j")


def translate(what: str, error: Exception) -> PenstockError:
    """Returns Refused for a wrong query, and Unavailable for errors that may pass."""
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

    lines = [line.strip() for line in str(error).splitlines()]
    if found := penstock_error_in(lines):
        return rebuild_error(what, found)
    if isinstance(error, AnalysisException | ParseException | IllegalArgumentException):
        return Refused(f"{what}: {sql_reason(lines)}")
    first = next((line for line in lines if line), "no reason given")
    return Unavailable(f"{what}: Spark: {first[:_REASON_CHARACTERS_MAX]}")


def is_session_gone(error: Exception, spark: "SparkSession") -> bool:
    """Whether an error means that the JVM, the Connect server or the context of a session is gone."""
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # It has no types.
    from pyspark.errors import PySparkException

    if isinstance(error, ConnectionError | EOFError | Py4JNetworkError):
        return True
    try:
        # Cheap, and answered by whatever runs the jobs. A session that cannot answer it cannot run a job.
        spark.conf.get("spark.app.name", "")
        context = getattr(spark, "_jsc", None)
        return context is not None and bool(context.sc().isStopped())
    except (PySparkException, Py4JError, ConnectionError, EOFError):
        return True


def reason_of(error: Exception) -> str:
    """Returns why a task failed, in one line: the last one of its Python traceback, or the first of Spark's words."""
    lines = [line.strip() for line in str(error).splitlines()]
    if found := penstock_error_in(lines):
        return found.partition(": ")[2][:_REASON_CHARACTERS_MAX]
    raised = [line for line in lines if _RAISED.match(line)]
    first = raised[-1] if raised else next((line for line in lines if line), "no reason given")
    return first[:_REASON_CHARACTERS_MAX]


def penstock_error_in(lines: Sequence[str]) -> str | None:
    """Returns the PenstockError that the lines of an error of Spark name, from its class on; or None."""
    found = [named for line in lines if (named := _OURS.search(line))]
    return found[-1][1] if found else None


def error_kind(line: str) -> type[PenstockError]:
    """Returns the class that a line of `penstock_error_in` names."""
    from ... import errors

    named = _OURS.match(line)
    found: type[PenstockError] = getattr(errors, named[2] if named else "", Unavailable)
    return found


def rebuild_error(what: str, line: str) -> PenstockError:
    text = line.partition(": ")[2]
    family = Refused if issubclass(error_kind(line), Refused) else Unavailable
    return family(f"{what}: {text[:_REASON_CHARACTERS_MAX]}")


def sql_reason(lines: Iterable[str]) -> str:
    """Returns what Spark says about a query, without the query and the plan that follow."""
    words: list[str] = []
    for line in dropwhile(lambda one: not one, lines):
        if line.startswith(("== SQL", "JVM stacktrace", "'", ";")) or not line:
            break
        words.append(line)
    text = " ".join(words).partition(" SQLSTATE:")[0]
    return text[:_REASON_CHARACTERS_MAX] or "Spark gives no reason"
