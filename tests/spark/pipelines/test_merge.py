"""Small files become large ones with the same rows, readers of every kind agree, and vacuum keeps what is asked for."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.errors import DamagedFile, Refused
from penstock.spark.pipelines import lake as lake_module
from penstock.spark.pipelines.delta import publish as to_delta
from penstock.spark.pipelines.lake import CHECKPOINTS, Lake, LakeReader, TableFormat, commit_path
from penstock.spark.pipelines.manifest import LakeFile, seal
from penstock.spark.pipelines.merge import compact, plan_merges
from penstock.spark.pipelines.state import LakeState
from penstock.spark.pipelines.vacuum import plan_vacuum, vacuum
from penstock.spark.pipelines.verify import verify

from .rigs import archived, places, publish, visible


def listed(root: Path) -> int:
    """Rows that a reader of the directory sees."""
    inside = (one for one in root.rglob("*.parquet") if "_penstock" not in one.parts)
    return sum(pq.ParquetFile(one).metadata.num_rows for one in inside)


@pytest.mark.parametrize("table", TableFormat)
def test_a_merge_keeps_every_row_for_every_reader(client, topic, tmp_path, table):
    publish(client, topic, 400)
    options = {"table": table, "publish": to_delta if table is TableFormat.DELTA else None}
    archived(tmp_path, client.url, topic, commit_messages_max=100, **options)
    before = len(LakeReader(tmp_path).paths())
    with Lake(tmp_path, publish=options["publish"]) as lake:
        (merge,) = compact(lake)
        assert compact(lake) == [], "there is nothing left to merge"
    assert (before, merge.rows, len(merge.files)) == (8, 400, 2)
    assert places(tmp_path) == visible(client, topic)
    report = verify(LakeReader(tmp_path), client, is_content_read=True)
    assert (report.problems, report.files, report.compared) == ([], 2, 400)
    publish(client, topic, 10, first=400)
    archived(tmp_path, client.url, topic, **options)
    assert places(tmp_path) == visible(client, topic)
    if table is TableFormat.PARQUET:
        assert listed(tmp_path) == 410
        return
    now = DeltaTable(str(tmp_path))
    assert now.to_pyarrow_table(columns=["offset"]).num_rows == 410
    actions = now.get_add_actions(flatten=True)
    lows = dict(zip(actions["path"].to_pylist(), actions["min.offset"].to_pylist(), strict=True))
    assert lows == {one.path: one.first for one in LakeReader(tmp_path).state().files.values()}
    version = now.version() - 1
    text = (tmp_path / f"_delta_log/{version:020d}.json").read_text()
    assert text.count('"remove":{') == 8
    assert '"dataChange":true' not in text


def test_an_earlier_state_is_there_until_vacuum_removes_it(client, topic, tmp_path):
    publish(client, topic, 200)
    archived(tmp_path, client.url, topic, commit_messages_max=100)
    with Lake(tmp_path) as lake:
        compact(lake)
        files = LakeReader(tmp_path)
        past = files.state("0")
        assert sum(one.rows for one in past.files.values()) == 100
        assert all(Path(files.path_of(one)).exists() for one in past.files.values())
        made_at = files.manifests()[1].made_at
        assert files.state(made_at).commits == 2
        assert plan_vacuum(lake, timedelta(days=7)) == [], "what was merged just now is kept"
        later = datetime.now(UTC) + timedelta(days=8)
        removals = plan_vacuum(lake, timedelta(days=7), later)
        assert {one.reason for one in removals} == {"replaced"}
        vacuum(lake, removals)
        assert plan_vacuum(lake, timedelta(0), later) == []
    with pytest.raises(Refused, match="which vacuum has removed"):
        LakeReader(tmp_path).state("0")
    for written in ("\N{SUPERSCRIPT TWO}", "9" * 5000):
        with pytest.raises(Refused, match="neither the number of a commit nor a time"):
            LakeReader(tmp_path).state(written)
    assert places(tmp_path) == visible(client, topic)
    assert verify(LakeReader(tmp_path), client, is_content_read=True).problems == []


def test_what_is_damaged_is_not_merged(client, topic, tmp_path):
    publish(client, topic, 200)
    archived(tmp_path, client.url, topic, commit_messages_max=100)
    path = Path(LakeReader(tmp_path).paths()[0])
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with Lake(tmp_path) as lake, pytest.raises(DamagedFile, match="not merged"):
        compact(lake)
    assert not LakeReader(tmp_path).manifests()[-1].is_merge


def small_file(number, size, **more):
    return LakeFile(
        path=f"f{number}", staged="", rows=1, size=size, sha256="", first=number, **more
    )


def test_neighbours_that_fit_are_merged_and_logs_stay_apart():
    state = LakeState()
    sizes = [10, 10, 60, 10, 40, 40, 40, 10]
    for number, size in enumerate(sizes):
        state.files[f"f{number}"] = small_file(number, size, topic="t", log=1)
    state.files["other"] = small_file(8, 10, topic="t", log=2)
    found = [[one.first for one in merge.files] for merge in plan_merges(state, 100)]
    assert found == [[0, 1], [3, 4, 5], [6, 7]]


def test_opening_reads_the_checkpoint_and_what_came_after_it(tmp_path, monkeypatch):
    monkeypatch.setattr(lake_module, "CHECKPOINT_COMMITS", 3)
    with Lake(tmp_path) as lake:
        for _ in range(8):
            lake.commit([], [])
    names = [one.name for one in (tmp_path / CHECKPOINTS).iterdir()]
    assert sorted(names) == [f"{3:020d}.json", f"{6:020d}.json"]
    read = []
    files = LakeReader(tmp_path)
    own = files.store.read
    monkeypatch.setattr(files.store, "read", lambda path: read.append(path) or own(path))
    assert files.state().commits == 8
    assert len(read) == 4, "the checkpoint, its manifest, and two after it"
    # A checkpoint that is not whole decides nothing.
    last = tmp_path / CHECKPOINTS / f"{6:020d}.json"
    last.write_text(last.read_text().replace('"commits":6', '"commits":5'))
    assert LakeReader(tmp_path).state().commits == 8
    assert verify(LakeReader(tmp_path)).problems == []


def test_a_checkpoint_that_says_something_else_is_found_out(client, topic, tmp_path, monkeypatch):
    monkeypatch.setattr(lake_module, "CHECKPOINT_COMMITS", 2)
    publish(client, topic, 200)
    archived(tmp_path, client.url, topic, commit_messages_max=100)
    assert verify(LakeReader(tmp_path)).problems == []
    found = LakeReader(tmp_path).checkpoint()
    found.files.pop(next(iter(found.files)))
    path = tmp_path / CHECKPOINTS / f"{2:020d}.json"
    path.write_bytes(seal(found.to_checkpoint(LakeReader(tmp_path).identity.lake))[0])
    (problem,) = verify(LakeReader(tmp_path)).problems
    assert problem == "the checkpoint of commit 1 is not what the manifests say"


def test_a_chain_whose_end_was_cut_off_is_found_out_by_its_checkpoint(
    client, topic, tmp_path, monkeypatch
):
    monkeypatch.setattr(lake_module, "CHECKPOINT_COMMITS", 2)
    publish(client, topic, 200)
    archived(tmp_path, client.url, topic, commit_messages_max=100)
    files = LakeReader(tmp_path)
    for one in files.manifests()[1].files:
        Path(files.path_of(one)).unlink()
    (tmp_path / commit_path(1)).unlink()
    (problem,) = verify(LakeReader(tmp_path)).problems
    assert problem == "there is a checkpoint of 2 commits, and the lake has 1: the last are missing"
