# Made from ../asynchronous/schemas.py by tools/unasync.py; change that one.
"""What a client asks of the schema registry, and values that it reads by schemas."""

from collections.abc import Sequence
from typing import Any

from ...api.arguments import instance, text, whole_number
from ...api.schemas import (
    LATEST,
    DescribeSchema,
    DescribeVersion,
    FindSchema,
    RegisterSchema,
    SchemaDescription,
)
from ...codec.schema_id import KEY_SCHEMA_ID, VALUE_SCHEMA_ID, joined
from ...errors import NotFound
from ...model import Valued
from ..schema_codec import (
    VERSION_MAX,
    Encoded,
    SchemaClosure,
    SchemaCodec,
    decode_plain,
    id_in,
    new_schema,
)
from .admin import Admin


class Schemas(Admin):
    """The part of `Client` that reads and registers schemas."""

    # Those that were asked for, by id or guid.
    _schemas: dict[int | bytes, SchemaCodec]

    def schema(self, subject: str, version: int = LATEST) -> SchemaCodec:
        """A version of a subject, for a producer's `schema`, or to `encode` values with. NotFound."""
        number = whole_number("version", version, LATEST, VERSION_MAX)
        command = DescribeVersion(text("subject", subject), number, serialized=True)
        return self._schema_codec((self.execute(command)).schema)

    def register_schema(
        self,
        subject: str,
        schema: str,
        language: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
    ) -> SchemaCodec:
        """The version of a subject that has this schema; one that is not there is registered, which takes the right to.

        A reference is a name, a subject and a version. InvalidSchema, IncompatibleSchema.
        """
        new = new_schema(schema, language, references)
        try:
            found = self.execute(FindSchema(text("subject", subject), new))
        except NotFound:
            found = self.execute(RegisterSchema(subject, new))
        return self.schema(subject, found.version)

    def schema_of_id(self, schema_id: int) -> SchemaCodec:
        """A schema by its id, whatever subjects it has. NotFound."""
        number = whole_number("schema_id", schema_id, 0, VERSION_MAX)
        known = self._schemas.get(number)
        if known is not None:
            return known
        found = self.execute(DescribeSchema(schema_id=number, serialized=True))
        return self._schema_codec(found)

    def decode(self, content: bytes | None, *, reader: SchemaCodec | None = None) -> Any:
        """The value of a key or a value that names its schema, as serialisers write it; other content has to be JSON.

        Refused if it is neither. With a `reader`, Avro is resolved to that schema. Schemas are asked for once.
        """
        if content is None:
            return None
        schema_id = id_in(instance("a content", content, bytes))
        if schema_id is None:
            return decode_plain(content)
        if reader is not None:
            instance("reader", reader, SchemaCodec)
        codec = self._schemas.get(schema_id) or self._schema_named(schema_id)
        return codec.decode(content, reader)

    def decode_value(self, message: Encoded, *, reader: SchemaCodec | None = None) -> Any:
        """The value of a message that names its schema, in its value or in a header beside it. As `decode`."""
        instance("a message", message, Valued)
        value = message.value
        content = None if value is None else bytes(joined(value, message.headers, VALUE_SCHEMA_ID))
        return self.decode(content, reader=reader)

    def decode_key(self, message: Encoded, *, reader: SchemaCodec | None = None) -> Any:
        """The key of a message that names its schema, in its key or in a header beside it. As `decode`."""
        instance("a message", message, Valued)
        key = message.key
        content = None if key is None else bytes(joined(key, message.headers, KEY_SCHEMA_ID))
        return self.decode(content, reader=reader)

    def _schema_named(self, schema_id: int | bytes) -> SchemaCodec:
        if isinstance(schema_id, int):
            return self.schema_of_id(schema_id)
        command = DescribeSchema(guid=schema_id.hex(), serialized=True)
        found = self._schema_codec(self.execute(command))
        self._schemas[schema_id] = found
        return found

    def _schema_codec(self, found: SchemaDescription) -> SchemaCodec:
        known = self._schemas.get(found.schema_id)
        if known is None:
            closure = SchemaClosure(found)
            while (needed := closure.needed()) is not None:
                command = DescribeVersion(
                    needed.subject, needed.version, deleted=True, serialized=True
                )
                closure.add(needed, (self.execute(command)).schema)
            known = SchemaCodec(found, closure.in_order())
            self._schemas[found.schema_id] = known
        return known
