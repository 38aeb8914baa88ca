"""Removes files that a lake needs no more: those that were merged into others, once readers are done with them.

A bucket also has files of attempts that were cut off, which no commit names. They are known by their names, and are
removed when they are as old, so that a commit that is under way keeps its own.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from .lake import REPLACED, Lake, LakeReader
from .state import LakeState
from .store import DirectoryStore, StoredFile

# What this program writes into a bucket, and nothing else: what it does not know it leaves alone.
_OWN_NAME = re.compile(r"(?:p\d{5}-\d{20}-\d{8}|rows)-[0-9a-f-]+\.parquet")


class Removal(NamedTuple):
    """A file to be removed, and why: replaced by a commit, or never committed."""

    path: str
    size: int
    reason: str


def plan_vacuum(lake: LakeReader, keep: timedelta, now: datetime | None = None) -> list[Removal]:
    """Returns the files that are in the lake no more for at least `keep`."""
    until = (now or datetime.now(UTC)) - keep
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
            if one.path not in known and _is_orphan(one, until)
        ]
    return found


def _is_orphan(one: StoredFile, until: datetime) -> bool:
    return bool(_OWN_NAME.fullmatch(one.path.rpartition("/")[2])) and one.changed_at <= until


def vacuum(lake: Lake, removals: list[Removal]) -> None:
    """Remove files. One that is gone already is fine."""
    for one in removals:
        lake.store.remove(one.path)
