"""Bugs of keys, schemas and journeys, planted one at a time: lost, answered too early, or told wrongly."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from pyroaring import BitMap64

from penstock.broker.catalogue import Catalogue
from penstock.broker.keys import KeyRevoked, Keys, KeyStored
from penstock.broker.meta import MetaRecord
from penstock.broker.partition import (
    Now,
    history,
)
from penstock.broker.partition.records import PartitionRecord
from penstock.delivery import commands
from penstock.delivery.records import (
    Acked,
    Cause,
)
from penstock.schemas import Registry
from penstock.schemas.records import VersionRemoved, VersionStored
from penstock.sim.violation import Checker

from .planting import Bug, Patch, planter, require_found

BUGS: list[Bug] = []
bug = planter(BUGS)


_CAUSES = {one.name: one for one in Cause}


@bug(4, Checker.KEYS)
def keys_lost_in_a_snapshot(patch: Patch) -> None:
    patch.setattr(Keys, "snapshot", lambda _: ())


@bug(4, Checker.KEYS)
def key_answered_before_it_is_durable(patch: Patch) -> None:
    original = Catalogue.record_meta

    def record(catalogue: Catalogue, records: Sequence[MetaRecord], now: Now) -> None:
        is_about_keys = any(isinstance(one, KeyStored | KeyRevoked) for one in records)
        (Catalogue._append if is_about_keys else original)(catalogue, records, now)

    patch.setattr(Catalogue, "record_meta", record)


@bug(4, Checker.SCHEMAS)
def versions_lost_in_a_snapshot(patch: Patch) -> None:
    patch.setattr(Registry, "snapshot", lambda _: ())


@bug(4, Checker.SCHEMAS)
def schema_answered_before_it_is_durable(patch: Patch) -> None:
    original = Catalogue.record_meta

    def record(catalogue: Catalogue, records: Sequence[MetaRecord], now: Now) -> None:
        is_about_schemas = any(isinstance(one, VersionStored) for one in records)
        (Catalogue._append if is_about_schemas else original)(catalogue, records, now)

    patch.setattr(Catalogue, "record_meta", record)


@bug(4, Checker.SCHEMAS)
def schema_id_given_again(patch: Patch) -> None:
    original = Registry._remove

    def remove(registry: Registry, record: VersionRemoved) -> None:
        original(registry, record)
        registry.next_id = max(registry.schemas, default=0) + 1

    patch.setattr(Registry, "_remove", remove)


@bug(4, Checker.JOURNEY)
def index_of_journeys_forgets_acks(patch: Patch) -> None:
    original = history.add_keys

    def add_keys(record: PartitionRecord, keys: BitMap64) -> None:
        if not isinstance(record, Acked):
            original(record, keys)

    patch.setattr(history, "add_keys", add_keys)


@bug(4, Checker.JOURNEY)
def expired_lease_told_as_a_nack(patch: Patch) -> None:
    patch.setattr(commands, "Cause", SimpleNamespace(**_CAUSES | {"LEASE_EXPIRED": Cause.NACKED}))


@pytest.mark.tier("test")
@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_a_planted_bug_is_found(planted: Bug, monkeypatch: Patch) -> None:
    require_found(planted, monkeypatch)
