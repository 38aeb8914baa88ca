"""By which version of a subject the values of a lake become columns: the newest that has all columns of the lake."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...api.schemas import ListVersions
from ...errors import NotFound
from ..typed import DATA, TypedValues
from .schema import Column, is_grown, kind_of

if TYPE_CHECKING:
    from ...client import Client
    from .lake import LakeColumns

_LOG = logging.getLogger("penstock.spark")


class FollowedSchema:
    """The schema of a lake's values. A version that changes a column is passed over: no reader could read both."""

    def __init__(self, columns: "LakeColumns") -> None:
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
