"""Typed columns for any table with a column `value`, such as the rows of an archive."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..api.schemas import LATEST
from ..errors import Refused
from .pipelines.remote import Remote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """Adds the columns in a task of Spark."""

    remote: Remote
    schema_id: int
    columns: tuple[str, ...]

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from .typed import TypedValues

        with self.remote.connect() as client:
            yield from TypedValues.of_id(client, self.schema_id).added(batches, self.columns)


def with_data(
    frame: "DataFrame",
    subject: str,
    *,
    version: int = LATEST,
    url: str | None = None,
    key_file: str | None = None,
    ca_file: str | None = None,
) -> "DataFrame":
    """A table with a column `value`, and behind its columns `data`, typed by a version of a subject, and `data_error`.

    A row whose value does not fit has null as `data` and the reason as `data_error`; no row is left out. Without
    `url` the broker is that of PENSTOCK_SERVER, of the current context, or of this machine.
    NotFound: there is no such version. Refused: there is no such column, or it is not binary. Unreachable.
    """
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    from .typed import DATA, DATA_ERROR, TypedValues

    kinds = {one.name: one.dataType for one in frame.schema.fields}
    if not isinstance(kinds.get("value"), BinaryType):
        raise Refused(f"a binary column value is needed; there are {', '.join(kinds)[:200]}")
    remote = Remote.named(url, key_file, ca_file)
    remote.require_broker()
    with remote.connect() as client:
        values = TypedValues.of_version(client, subject, version)
    added = [
        StructField(DATA, from_arrow_type(values.shape.arrow)),
        StructField(DATA_ERROR, StringType()),
    ]
    task = DecodeTask(remote, values.schema_id, tuple(frame.columns))
    return frame.mapInArrow(task, StructType([*frame.schema.fields, *added]))
