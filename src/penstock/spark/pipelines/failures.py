"""What Spark raises, as errors of ours: one line that says what is wrong, and whose it is to mend."""

from collections.abc import Iterable, Sequence
from itertools import dropwhile
from types import TracebackType

from ...errors import PenstockError, Refused, Unavailable

_REASON_CHARACTERS_MAX = 500
_OURS = "penstock.errors."


class Saying:
    """Inside, a failure of Spark becomes one of ours: `with saying("transform paid"): ...`."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception) and is_of_spark(error):
            raise translated(self.what, error) from error


saying = Saying


def is_of_spark(error: Exception) -> bool:
    """py4j is how Python talks to the JVM; what it raises has no common base with the rest."""
    from pyspark.errors import PySparkException

    is_known = isinstance(error, PySparkException | ConnectionError | EOFError)
    return is_known or type(error).__module__.startswith("py4j")


def translated(what: str, error: Exception) -> PenstockError:
    """A query that is wrong is the caller's to mend; everything else may pass."""
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

    lines = [line.strip() for line in str(error).splitlines()]
    if ours := error_of_ours(lines):
        return ours_again(what, ours)
    if isinstance(error, AnalysisException | ParseException | IllegalArgumentException):
        return Refused(f"{what}: {sql_reason(lines)}")
    first = next((line for line in lines if line), "no reason given")
    return Unavailable(f"{what}: Spark: {first[:_REASON_CHARACTERS_MAX]}")


def error_of_ours(lines: Sequence[str]) -> str | None:
    """The line of a Python traceback, as Spark prints it, that names an error of ours."""
    found = [line for line in lines if line.startswith(_OURS)]
    return found[-1] if found else None


def ours_again(what: str, line: str) -> PenstockError:
    from ... import errors

    name, _, text = line.removeprefix(_OURS).partition(": ")
    kind = getattr(errors, name, Unavailable)
    family = Refused if issubclass(kind, Refused) else Unavailable
    return family(f"{what}: {text[:_REASON_CHARACTERS_MAX]}")


def sql_reason(lines: Iterable[str]) -> str:
    """The words of Spark about a query, without the query and the plan that follow them."""
    words: list[str] = []
    for line in dropwhile(lambda one: not one, lines):
        if line.startswith(("== SQL", "JVM stacktrace", "'", ";")) or not line:
            break
        words.append(line)
    text = " ".join(words).partition(" SQLSTATE:")[0]
    return text[:_REASON_CHARACTERS_MAX] or "Spark gives no reason"
