"""Records of a machine as bytes: one message a record, MessagePack inside, the format's version as schema id."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from ..codec import Columns, Encoded, Head, Marks, encode
from ..codec.body import Column
from ..codec.decode import open_body
from ..errors import DamagedFile, UnsupportedFormat
from ..model import Buffer

Record = TypeVar("Record")
_RECORDS_A_BATCH = 1000
_BATCH_BYTES = 4 << 20


class RecordFormat(Generic[Record]):
    """The format of the records of one machine.

    `kinds` is a union of tagged msgspec structs. A version that is newer than this one, or older than `oldest`, is
    refused: applying half of what another release recorded would be worse than not starting.
    """

    def __init__(self, kinds: Any, *, version: int = 1, oldest: int = 1) -> None:
        self.version, self.oldest = version, oldest
        self.encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(kinds).decode

    def to_batch(self, values: list[bytes], *, marks: Marks, now_ns: int) -> Encoded:
        """A batch of encoded records."""
        return encode(
            Columns(values=values, timestamps=now_ns, schema_ids=self.version), marks=marks
        )

    def to_batches(
        self, records: Iterable[Record], *, marks: Marks, now_ns: int
    ) -> Iterator[Encoded]:
        """Yields batches of records; a new one begins where the records of the last one have grown large."""
        values: list[bytes] = []
        size = 0
        for value in map(self.encode, records):
            if values and (len(values) >= _RECORDS_A_BATCH or size + len(value) > _BATCH_BYTES):
                yield self.to_batch(values, marks=marks, now_ns=now_ns)
                values, size = [], 0
            values.append(value)
            size += len(value)
        if values:
            yield self.to_batch(values, marks=marks, now_ns=now_ns)

    def from_batch(self, batch: Buffer, head: Head, path: str) -> Iterator[Record]:
        body = open_body(batch, head)
        versions = body.number(Column.SCHEMA_IDS)
        # 0 in a batch that only stands for offsets which a repair could not save.
        found = {*([versions] if isinstance(versions, int) else versions.tolist())} - {0}
        if found and not self.oldest <= min(found) <= max(found) <= self.version:
            versions_read = " to ".join(map(str, sorted({self.oldest, self.version})))
            raise UnsupportedFormat(
                f"{path} holds records of version {', '.join(map(str, sorted(found)))}, and this Penstock reads "
                f"version {versions_read} only: go on with the one that wrote them"
            )
        try:
            yield from map(self._decode, body.blob(Column.VALUES).items(body.count, b""))
        except msgspec.DecodeError as error:
            raise DamagedFile(path, f"a record cannot be read: {error}") from None
