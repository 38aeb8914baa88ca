"""Every file and directory of a data directory is lost, cut, changed or put back from an older copy, one at a time.

Whatever happens to one, nothing else goes, nothing wrong is served, and what is wrong is named: in the log, in
`/readyz?verbose`, in `/metrics`, and by `penstock log verify`. Or the broker refuses to start and names the file.
"""

import os
from collections import defaultdict
from collections.abc import Iterator

import pytest

from .commands import Commands
from .file_faults import OLDER, RECENT, SHORTER, Fault, Victim
from .furnished import Furnished, furnish
from .trials import Table, Trials

SHARDS = 4
ENDINGS = ("stopped", "killed")
# Where the outcomes are written, one JSON object a line, if anywhere.
TABLE_VARIABLE = "PENSTOCK_ABSENT_TABLE"


@pytest.fixture(scope="module")
def commands(tmp_path_factory) -> Iterator[Commands]:
    server = Commands(tmp_path_factory.mktemp("commands"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def furnished(commands, tmp_path_factory) -> Furnished:
    return furnish(commands, tmp_path_factory.mktemp("furnished"))


@pytest.fixture(scope="module")
def trials(commands, furnished, tmp_path_factory) -> dict[str, Trials]:
    copies = {OLDER: furnished.older, RECENT: furnished.recent}
    return {
        ending: Trials(
            commands,
            furnished,
            Victim(getattr(furnished, ending), copies),
            ending,
            tmp_path_factory.mktemp(ending),
        )
        for ending in ENDINGS
    }


def chosen(trials: dict[str, Trials], tier: str) -> list[tuple[str, Fault]]:
    """All faults in torture; below it one file of each kind with each fault, in one of the two directories."""
    everything = [
        (ending, fault)
        for ending, one in trials.items()
        for fault in one.victim.faults(flips=5 if tier == "torture" else 2)
    ]
    if tier == "torture":
        return everything
    places: dict[tuple[str, str], list[tuple[str, Fault]]] = defaultdict(list)
    for ending, fault in everything:
        # What is cut in half, or is younger than the older copy, is met in the same places of the code.
        is_log = fault.path.endswith(".log")
        if not is_log and fault.what in {SHORTER, RECENT}:
            continue
        places[trials[ending].kind_of(fault), fault.what].append((ending, fault))
    return [found[number * 7 % len(found)] for number, found in enumerate(places.values())]


@pytest.mark.tier("test")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_whole_older_copy_is_a_legal_start(trials, furnished, ending):
    trial = trials[ending].start(furnished.older)
    assert trial.seen is not None, trial.output
    assert trial.verified.code == 0
    assert trial.seen.health["status"] == "pass"
    assert trial.seen.health.get("recovery", []) == []


@pytest.mark.tier("test")
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_undamaged_directory_is_as_it_was(trials, ending):
    usual = trials[ending].usual
    assert not [*trials[ending].judge.wrong(usual.seen)]
    assert usual.verified.code == 0
    assert usual.seen.server_errors == []
    assert usual.seen.keys_refused == 0
    assert usual.seen.health["status"] == "pass"
    assert usual.seen.health.get("recovery", []) == []


@pytest.mark.tier("test")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_absent_or_damaged_files_are_told_and_nothing_else_is_lost(trials, shard, tier):
    table = Table()
    for ending, fault in chosen(trials, tier)[shard::SHARDS]:
        verdict = trials[ending].run(fault, is_repeated=tier == "torture")
        table.add(ending, trials[ending].kind_of(fault), fault, verdict)
    table.write(os.environ.get(TABLE_VARIABLE))
    assert not table.problems, "\n".join(table.problems)
