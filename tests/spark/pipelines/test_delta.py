"""The Delta table of a lake among other programs: what they may not do, what is refused, and how it comes back."""

import json
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from penstock.cli.exits import Exit, run
from penstock.cli.root import root as command
from penstock.errors import Damaged, Refused
from penstock.spark.pipelines.delta import publish, rebuild
from penstock.spark.pipelines.lake import Lake, LakeReader, TableFormat
from penstock.spark.pipelines.manifest import StreamBatch
from penstock.spark.pipelines.merge import compact
from penstock.spark.pipelines.schema import columns_of
from penstock.spark.pipelines.task_files import ParquetSink
from penstock.spark.pipelines.verify import verify

FOREIGN = {"minReaderVersion": 1, "minWriterVersion": 2}


def add(root, *numbers):
    """One commit with one file for each list of numbers."""
    with Lake(root, table=TableFormat.DELTA, publish=publish) as lake:
        files = []
        for place, some in enumerate(numbers):
            table = pa.table({"number": pa.array(some, pa.int64())})
            staged = f"{lake.next_commit:020d}/a/{place}.parquet"
            path = f"rows-{lake.next_commit:08d}-{place:08x}.parquet"
            sink = ParquetSink(lake.store, path, staged, table.schema, "zstd")
            sink.writer.write_table(table)
            files.append(sink.close())
        lake.commit([], files, StreamBatch("q", lake.next_commit), columns=columns_of(table.schema))


def numbers(root):
    return sorted(DeltaTable(str(root)).to_pyarrow_table()["number"].to_pylist())


def act(root, *actions):
    """Another program writes an entry, whatever the protocol says."""
    version = DeltaTable(str(root)).version() + 1
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (root / "_delta_log" / f"{version:020d}.json").write_text(text)


def optimize_by_another_program(root):
    """All files become one, as OPTIMIZE of an engine does that knows nothing of the manifests."""
    table = DeltaTable(str(root))
    paths = table.get_add_actions().column("path").to_pylist()
    rows = table.to_pyarrow_table()
    pa.parquet.write_table(rows, root / "part-0.parquet")
    size = (root / "part-0.parquet").stat().st_size
    added = {"path": "part-0.parquet", "partitionValues": {}, "size": size}
    act(
        root,
        {"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE", "engineInfo": "other 1.0"}},
        *({"remove": {"path": one, "deletionTimestamp": 1, "dataChange": False}} for one in paths),
        {"add": {**added, "modificationTime": 1, "dataChange": False}},
    )


def delete_by_another_program(root):
    path = DeltaTable(str(root)).get_add_actions().column("path").to_pylist()[0]
    act(root, {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}})


def remove_the_log(root):
    shutil.rmtree(root / "_delta_log")


@pytest.fixture
def root(tmp_path):
    add(tmp_path, [1, 2], [3])
    add(tmp_path, [4])
    return tmp_path


def problems(root):
    return verify(LakeReader(root)).problems


def test_programs_that_follow_the_protocol_read_the_table_and_do_not_write_it(root):
    table = DeltaTable(str(root))
    assert numbers(root) == [1, 2, 3, 4]
    more = pa.table({"number": pa.array([5], pa.int64())})
    for change in (
        table.optimize.compact,
        lambda: table.delete("number = 1"),
        lambda: write_deltalake(str(root), more, mode="append"),
    ):
        with pytest.raises(CommitFailedError, match="penstock"):
            change()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert problems(root) == []
    add(root, [5])
    assert numbers(root) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (optimize_by_another_program, r"3 files .* not in it, .*1 are no files .*other 1.0 \(OPT"),
        (delete_by_another_program, "1 files of the lake are not in it"),
        (remove_the_log, "log .*is gone"),
    ],
    ids=["optimize", "delete", "log removed"],
)
def test_what_another_program_did_is_refused_told_and_made_good(root, change, says):
    change(root)
    before = LakeReader(root).state().head
    with pytest.raises(Refused, match=says):
        add(root, [5])
    with (
        pytest.raises(Refused, match="delta-rebuild"),
        Lake(root, publish=publish) as lake,
    ):
        compact(lake, 1 << 20)
    assert LakeReader(root).state().head == before
    (problem,) = (text for text in problems(root) if "no commit names" not in text)
    assert "delta-rebuild" in problem
    assert run(command, ["archive", "delta-rebuild", str(root)]) == Exit.OK
    # What the other program wrote is not this one's to remove.
    (root / "part-0.parquet").unlink(missing_ok=True)
    assert problems(root) == []
    assert numbers(root) == [1, 2, 3, 4]
    add(root, [5])
    assert numbers(root) == [1, 2, 3, 4, 5]


def test_a_change_in_the_middle_of_a_run_stops_the_next_commit_before_it_is_decided(root):
    with Lake(root, publish=publish) as lake:
        delete_by_another_program(root)
        with pytest.raises(Refused, match="rewrote the Delta table"):
            lake.commit([], [], StreamBatch("q", 9))
        assert lake.next_commit == 2
    assert len(LakeReader(root).history()) == 2


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 2, "minWriterVersion": 5},
        {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["changeDataFeed"]},
        {"minReaderVersion": 1, "minWriterVersion": 3},
    ],
    ids=str,
)
def test_a_protocol_that_another_program_has_changed_is_refused(root, protocol):
    act(root, {"protocol": protocol})
    with pytest.raises(Refused, match="changed the protocol"):
        add(root, [5])
    assert len(LakeReader(root).history()) == 2


def test_a_table_from_before_gets_the_feature_with_its_next_commit(root):
    act(root, {"protocol": FOREIGN})
    assert DeltaTable(str(root)).protocol().writer_features is None
    add(root, [5])
    assert DeltaTable(str(root)).protocol().writer_features == ["penstock"]
    assert numbers(root) == [1, 2, 3, 4, 5]


def test_a_released_table_is_that_of_others_until_it_is_rebuilt(root):
    assert run(command, ["archive", "delta-release", str(root)]) == Exit.OK
    DeltaTable(str(root)).delete("number = 1")
    assert numbers(root) == [2, 3, 4]
    with pytest.raises(Refused, match="was released to other programs"):
        add(root, [5])
    assert problems(root) == [], "the files are those of the manifests"
    others = list(root.glob("part-*"))
    assert run(command, ["archive", "delta-rebuild", str(root)]) == Exit.OK
    assert len(problems(root)) == len(others) > 0
    add(root, [5])
    assert numbers(root) == [1, 2, 3, 4, 5]
    with pytest.raises(CommitFailedError):
        DeltaTable(str(root)).delete("number = 1")


def test_files_that_another_program_removed_are_told_and_not_forgotten(root):
    optimize_by_another_program(root)
    (path, *_) = LakeReader(root).state().files
    (root / path).unlink()
    assert any(path in problem for problem in problems(root))
    with pytest.raises(Damaged, match=r"1 files of .* are gone"), Lake(root) as lake:
        rebuild(lake)


def test_a_lake_without_a_delta_table_has_none_to_release(tmp_path, capfd):
    with Lake(tmp_path):
        pass
    assert run(command, ["archive", "delta-release", str(tmp_path)]) != Exit.OK
    assert "has no Delta table" in capfd.readouterr().err
