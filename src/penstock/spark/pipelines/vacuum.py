"""Removes files that a lake needs no more: those that were merged into others, once readers are done with them.

A bucket also has files of attempts that were cut off, which no commit names. They are known by their names, which have
the number of the commit that they were for. The next commit may be under way, so its files are kept for a day at least.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from .lake import REPLACED, Lake, LakeReader
from .state import LakeState
from .store import DirectoryStore, StoredFile

# What this program writes into a bucket, with the number of a commit, and nothing else: the rest it leaves alone.
_OWN_NAME = re.compile(r"(?:p\d{5}-\d{20}|rows)-(\d{8,})-[0-9a-f-]+\.parquet")
_UNDER_WAY = timedelta(days=1)


class Removal(NamedTuple):
    """A file to be removed, and why: replaced by a commit, or never committed."""

    path: str
    size: int
    reason: str


def plan_vacuum(lake: LakeReader, keep: timedelta, now: datetime | None = None) -> list[Removal]:
    """Returns the files that are in the lake no more for at least `keep`."""
    now = now or datetime.now(UTC)
    until = now - keep
    state, replaced = LakeState(), dict[str, tuple[int, datetime]]()
    for manifest, own in lake.history():
        made_at = datetime.fromisoformat(manifest.made_at)
        for path in manifest.replaced:
            if path in state.files:
                replaced[path] = (state.files[path].size, made_at)
        state.apply(manifest, own)
    found = [
        Removal(place, size, "replaced")
        for path, (size, at) in replaced.items()
        for place in (path, f"{REPLACED}/{path}")
        if at <= until and lake.store.has(place)
    ]
    if not isinstance(lake.store, DirectoryStore):
        known = state.files.keys() | replaced.keys()
        found += [
            Removal(one.path, one.size, "never committed")
            for one in lake.store.files()
            if one.path not in known and _is_orphan(one, state.commits, until, now)
        ]
    return found


def _is_orphan(one: StoredFile, commits: int, until: datetime, now: datetime) -> bool:
    """Whether this program wrote a file that no commit names, and none of those to come will."""
    found = _OWN_NAME.fullmatch(one.path.rpartition("/")[2])
    if found is None:
        return False
    is_decided = int(found[1]) < commits
    return one.changed_at <= (until if is_decided else min(until, now - _UNDER_WAY))


def vacuum(lake: Lake, removals: list[Removal]) -> None:
    """Remove files. One that is gone already is fine."""
    for one in removals:
        lake.store.remove(one.path)
