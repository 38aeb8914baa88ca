"""Tasks carried out by Spark: here, on a cluster or behind a Connect server, by the same call."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from ...client.failures import rebuilt
from ...errors import PenstockError, Unavailable
from .failures import saying

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
_I32, _I64 = struct.Struct("<i"), struct.Struct("<q")


class Spread(Protocol):
    """Carries out tasks somewhere and gives back what each returned, in their order.

    A task may be carried out more than once, also at the same time; one of the answers is returned.
    """

    def __call__(self, call: Callable[[T], bytes], tasks: Sequence[T]) -> list[bytes]: ...


def one_answer(answer: bytes) -> "pa.Array":
    """A column of one row. Made from buffers: `pa.array` imports pandas, a second in each new worker."""
    import pyarrow as pa

    ends = pa.py_buffer(_I32.pack(0) + _I32.pack(len(answer)))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(answer)])


def one_number(number: int) -> "pa.Array":
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(_I64.pack(number))])


class _Failed(msgspec.Struct):
    error: str
    message: str
    fields: dict[str, Any]


class _Worker(Generic[T]):
    """Goes to the executors. A refusal comes back as an answer, a crash is left to Spark, which tries again."""

    def __init__(self, call: Callable[[T], bytes], tasks: Sequence[T]) -> None:
        self.call, self.tasks = call, tasks

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                answer, is_good = self._answer(self.tasks[number])
                flag = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(bytes([is_good]))])
                yield pa.RecordBatch.from_arrays(
                    [one_number(number), flag, one_answer(answer)],
                    names=["number", "is_good", "answer"],
                )

    def _answer(self, task: T) -> tuple[bytes, bool]:
        try:
            return self.call(task), True
        except PenstockError as error:
            fields = {name: one for name, one in error.fields.items() if _is_plain(one)}
            return msgspec.json.encode(_Failed(error.code, str(error), fields)), False
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            text = f"a task failed: {where}{error.strerror or error}"
            return msgspec.json.encode(_Failed(Unavailable.code, text, {})), False


def _is_plain(one: object) -> bool:
    return one is None or isinstance(one, str | int | float)


class SparkSpread:
    """One Spark task for each of ours."""

    def __init__(self, spark: "SparkSession") -> None:
        self.spark = spark

    def __call__(self, call: Callable[[T], bytes], tasks: Sequence[T]) -> list[bytes]:
        if not tasks:
            return []
        count = len(tasks)
        numbers = self.spark.range(0, count, 1, count)
        schema = "number bigint, is_good boolean, answer binary"
        with saying("tasks"):
            rows = numbers.mapInArrow(_Worker(call, tasks), schema).collect()
        found = {row["number"]: row for row in rows}
        for row in found.values():
            if not row["is_good"]:
                failed = msgspec.json.decode(bytes(row["answer"]), type=_Failed)
                said = {"error": failed.error, "message": failed.message, **failed.fields}
                raise rebuilt(said)
        return [bytes(found[number]["answer"]) for number in range(count)]
