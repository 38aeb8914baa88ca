"""By which version of a subject the values of a lake become columns: the newest that has all columns of the lake."""

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ...api.schemas import ListVersions
from ...errors import NotFound, Refused
from ..typed import DATA, DATA_ERROR, TypedValues
from .lake import LakeColumns
from .rows import SCHEMA
from .schema import RESERVED_FOLDERS, Column, is_grown, kind_of

if TYPE_CHECKING:
    from ...client import Client

_LOG = logging.getLogger("penstock.spark")
_FOLDER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{,49}")
_FOLDER_KINDS = ("string", "byte", "short", "integer", "long", "boolean", "date")


def new_columns(client: "Client", subject: str, partition_by: str) -> LakeColumns:
    """Returns the columns of a new lake, by the latest version of a subject. NotFound: there is none.

    Refused: values have no such field, or its values are no names of folders.
    """
    values = TypedValues.of_version(client, subject)
    if partition_by:
        data = values.shape.arrow
        place = data.get_field_index(partition_by) if pa.types.is_struct(data) else -1
        kind = "" if place < 0 else kind_of(data.field(place).type)
        if kind not in _FOLDER_KINDS:
            raise Refused(
                f"values of {subject} have no field {partition_by} of text, whole numbers, booleans or days: "
                "they cannot be divided by it"
            )
        taken = {*SCHEMA.names, *RESERVED_FOLDERS, DATA, DATA_ERROR}
        if partition_by.lower() in taken or not _FOLDER_NAME.fullmatch(partition_by):
            raise Refused(f"{partition_by} cannot be the name of a folder, or is a column of lakes")
    return LakeColumns(subject, values.schema_id, partition_by)


class FollowedSchema:
    """The schema of a lake's values. A version that changes a column is passed over: no reader could read both."""

    def __init__(self, columns: LakeColumns) -> None:
        self.schema_id = columns.schema_id
        self._subject = columns.subject
        self._seen: list[int] = []

    def follow(self, client: "Client", known: Sequence[Column]) -> None:
        """Look for versions that came since. Without any, because the subject was deleted, all stays as it is."""
        try:
            versions = client.execute(ListVersions(self._subject))
        except NotFound:
            return
        if versions == self._seen:
            return
        data = next((one.type for one in known if one.name == DATA), None)
        for version in sorted(versions, reverse=True):
            values = TypedValues.of_version(client, self._subject, version)
            if data is None or is_grown(data, kind_of(values.shape.arrow)):
                self.schema_id = values.schema_id
                break
            _LOG.warning(
                "version %d of %s leaves out or changes columns of the lake: its values are read as those before",
                version,
                self._subject,
            )
        self._seen = versions
