"""Runs tasks on Spark, in this process, on a cluster or behind a Connect server."""

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from ...api.error_reply import ErrorReply, error_reply, rebuilt_error
from ...errors import PenstockError, Unavailable
from .spark_errors import spark_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
_I32, _I64 = struct.Struct("<i"), struct.Struct("<q")


class TaskRunner(Protocol):
    """Runs tasks and returns the answer of each, in their order.

    A task may run more than once, also at the same time; one of its answers is returned.
    """

    def __call__(self, call: Callable[[T], bytes], tasks: Sequence[T]) -> list[bytes]: ...


def binary_column(answer: bytes) -> "pa.Array":
    """Returns a column of one row. Made from buffers: `pa.array` imports pandas, a second in each new worker."""
    import pyarrow as pa

    ends = pa.py_buffer(_I32.pack(0) + _I32.pack(len(answer)))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(answer)])


def number_column(number: int) -> "pa.Array":
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(_I64.pack(number))])


class _TaskWorker(Generic[T]):
    """Runs tasks on the executors. Returns an error as an answer; after a crash Spark runs the task again."""

    def __init__(self, call: Callable[[T], bytes], tasks: Sequence[T]) -> None:
        self.call, self.tasks = call, tasks

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                answer, is_good = self._answer(self.tasks[number])
                flag = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(bytes([is_good]))])
                yield pa.RecordBatch.from_arrays(
                    [number_column(number), flag, binary_column(answer)],
                    names=["number", "is_good", "answer"],
                )

    def _answer(self, task: T) -> tuple[bytes, bool]:
        try:
            return self.call(task), True
        except PenstockError as error:
            return msgspec.json.encode(error_reply(error)), False
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            text = f"a task failed: {where}{error.strerror or error}"
            return msgspec.json.encode(ErrorReply(Unavailable.code, text, True)), False


class LocalTaskRunner:
    """Runs tasks in threads of this process, without Spark. Arrow and the network release the interpreter."""

    def __call__(self, call: Callable[[T], bytes], tasks: Sequence[T]) -> list[bytes]:
        with ThreadPoolExecutor(os.cpu_count() or 1, "task") as pool:
            return list(pool.map(call, tasks))


class SparkTaskRunner:
    """Runs one task of Spark for each task. Raises the first error that a task returned."""

    def __init__(self, spark: "SparkSession") -> None:
        self.spark = spark

    def __call__(self, call: Callable[[T], bytes], tasks: Sequence[T]) -> list[bytes]:
        if not tasks:
            return []
        count = len(tasks)
        numbers = self.spark.range(0, count, 1, count)
        schema = "number bigint, is_good boolean, answer binary"
        with spark_errors("tasks"):
            rows = numbers.mapInArrow(_TaskWorker(call, tasks), schema).collect()
        found = {row["number"]: row for row in rows}
        for row in found.values():
            if not row["is_good"]:
                raise rebuilt_error(msgspec.json.decode(bytes(row["answer"]), type=ErrorReply))
        return [bytes(found[number]["answer"]) for number in range(count)]
