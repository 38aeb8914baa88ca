"""Records of a machine as bytes: one message a record, MessagePack inside, the format's version as schema id."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from ..codec import Columns, Encoded, Head, Marks, decode_columns, encode
from ..errors import DamagedFile, UnsupportedFormat
from ..model import Buffer

Record = TypeVar("Record")


class RecordFormat(Generic[Record]):
    """How the records of one machine are written.

    `kinds` is a union of tagged msgspec structs. A version that is newer than this one is refused: applying half
    of what somebody else recorded would be worse than not starting.
    """

    def __init__(self, kinds: Any, *, version: int = 1) -> None:
        self.version = version
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(kinds).decode

    def to_batch(self, records: Iterable[Record], *, marks: Marks, now_ns: int) -> Encoded:
        values = list(map(self._encode, records))
        return encode(
            Columns(values=values, timestamps=now_ns, schema_ids=self.version), marks=marks
        )

    def from_batch(self, batch: Buffer, head: Head, path: str) -> Iterator[Record]:
        columns = decode_columns(batch, head)
        versions = columns.schema_ids
        # None in a batch that only stands for offsets which a repair could not save.
        if max((version or 0 for version in versions), default=0) > self.version:
            raise UnsupportedFormat(f"{path} holds records newer than version {self.version}")
        try:
            yield from map(self._decode, columns.values)  # type: ignore[arg-type]  # Never null here.
        except msgspec.DecodeError as error:
            raise DamagedFile(path, f"a record cannot be read: {error}") from None
