"""Translates errors of Spark: one line that says what is wrong, as Refused or Unavailable."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import dropwhile

from ...errors import PenstockError, Refused, Unavailable

_REASON_CHARACTERS_MAX = 500
_OURS = "penstock.errors."


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


def penstock_error_in(lines: Sequence[str]) -> str | None:
    """Returns the line of a Python traceback, as Spark prints it, that names a PenstockError; or None."""
    found = [line for line in lines if line.startswith(_OURS)]
    return found[-1] if found else None


def rebuild_error(what: str, line: str) -> PenstockError:
    from ... import errors

    name, _, text = line.removeprefix(_OURS).partition(": ")
    kind = getattr(errors, name, Unavailable)
    family = Refused if issubclass(kind, Refused) else Unavailable
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
