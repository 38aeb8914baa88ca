"""What one key may fill of what all keys share: bounds of a key, and of the node, for each kind of thing that stays.

A full share refuses the key that fills it and takes nothing from another. Without keys all clients are one, and only
the bounds of the node hold.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ..api.principals import NO_KEY, Principal
from ..config import LimitsConfig
from ..errors import ShareFull
from ..kernel import OwnerCounts


@dataclass(frozen=True, slots=True)
class Share:
    """A kind of thing that keys fill, and the names of its two limits: for all keys together, and for each."""

    kind: str
    in_all: str
    per_key: str

    def require_room(
        self,
        limits: LimitsConfig,
        by: Principal,
        counts: Iterable[OwnerCounts],
        *,
        of_key: int = 1,
        in_all: int = 1,
    ) -> None:
        """ShareFull, unless there is room for so many more of the principal's key, and in all.

        The two differ where something of another key, or of the same one, is replaced.
        """
        used_of_key = used_in_all = 0
        for count in counts:
            used_of_key += count.of(by.key_id)
            used_in_all += count.total
        if by.key_id != NO_KEY:
            self._require(limits, self.per_key, f"key {by.name}", used_of_key, of_key)
        self._require(limits, self.in_all, "this broker", used_in_all, in_all)

    def _require(
        self, limits: LimitsConfig, setting: str, holder: str, used: int, adding: int
    ) -> None:
        limit: int = getattr(limits, setting)
        if adding > 0 and used + adding > limit:
            raise ShareFull(
                self.kind, holder=holder, used=used, limit=limit, setting=f"limits.{setting}"
            )


QUERY_STARTS = Share("query starts", "query_starts_max", "query_starts_per_key_max")
GROUPS = Share("groups", "groups_max", "groups_per_key_max")
PIPELINES = Share("pipelines", "pipelines_max", "pipelines_per_key_max")
PRODUCERS = Share("producers with transactions", "producers_max", "producers_per_key_max")
COMMIT_NAMES = Share("names of commits", "commit_names_max", "commit_names_per_key_max")
MEMBERS = Share("members", "members_max", "members_per_key_max")
QUERY_START_BYTES = Share(
    "bytes of query starts", "query_start_bytes_max", "query_start_bytes_per_key_max"
)
