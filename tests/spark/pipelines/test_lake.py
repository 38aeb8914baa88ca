"""A lake believes its manifests, finishes what was decided, and forgets what was not."""

import json
from pathlib import Path

import msgspec
import pytest

from penstock.errors import AlreadyExists, AlreadyOpen, Damaged, FileMissing, Refused
from penstock.spark.pipelines.lake import (
    COMMITS,
    STAGING,
    Lake,
    LakeReader,
    Split,
    TableFormat,
)
from penstock.spark.pipelines.manifest import (
    Gap,
    LakeFile,
    Manifest,
    Span,
    StreamBatch,
    decode_manifest,
    encode_manifest,
)
from penstock.spark.pipelines.schema import Column
from penstock.spark.pipelines.state import Checkpoint
from penstock.spark.pipelines.store import store_of, write_new


def span(start, end, log=1):
    return Span(topic="t", partition=0, start=start, end=end, rows=end - start, log=log)


def staged(lake, name):
    path = lake.root / STAGING / "0" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(name.encode())
    return LakeFile(path=f"topic=t/{name}", staged=f"0/{name}", rows=1, size=len(name), sha256="")


def test_a_commit_moves_its_files_and_the_next_one_goes_on_from_it(tmp_path):
    with Lake(tmp_path) as lake:
        lake.commit([span(0, 5)], [staged(lake, "a")])
        with pytest.raises(Refused, match="t/0 is archived up to 5, not up to 4"):
            lake.commit([span(4, 9)], [])
        with pytest.raises(Refused, match="another log, which begins at 0, not at 5"):
            lake.commit([span(5, 9, log=2)], [])
        lake.commit([span(5, 9)], [staged(lake, "b")])
    with Lake(tmp_path) as lake:
        assert [one.commit for one in lake.manifests()] == [0, 1]
        assert {str(place): one.end for place, one in lake.ends.items()} == {"t/0": 9}
        assert sorted(one.name for one in (tmp_path / "topic=t").iterdir()) == ["a", "b"]


def test_a_log_that_another_one_has_followed_never_comes_back(tmp_path):
    with Lake(tmp_path) as lake:
        lake.commit([span(0, 5)], [])
        lake.commit([span(0, 3, log=2)], [])
        with pytest.raises(Refused, match="two brokers share the lake"):
            lake.commit([span(0, 5)], [])
        lake.commit([span(3, 4, log=2)], [])


def test_what_was_decided_is_finished_and_what_was_not_is_removed(tmp_path, monkeypatch):
    with Lake(tmp_path) as lake:
        decided, orphan = staged(lake, "decided"), staged(lake, "orphan")
        with monkeypatch.context() as patch:
            patch.setattr(lake, "publish", lambda _manifest: None)
            lake.commit([span(0, 1)], [decided])
    where = Path(LakeReader(tmp_path).path_of(decided))
    assert where.parent.name == "0", "still in staging, and found there"
    (tmp_path / COMMITS / ".draft").write_text("half")
    with Lake(tmp_path):
        assert (tmp_path / decided.path).exists()
        assert not (tmp_path / STAGING / orphan.staged).exists()
        assert [one.name for one in (tmp_path / COMMITS).iterdir()] == [f"{0:020d}.json"]


def test_a_micro_batch_is_known_again_after_a_restart(tmp_path):
    with Lake(tmp_path) as lake:
        lake.commit([], [staged(lake, "a")], StreamBatch("q", 3, "1 rows, aa"))
        lake.write_checkpoint()
    with Lake(tmp_path) as lake:
        assert lake.now.streams == {"q": StreamBatch("q", 3, "1 rows, aa")}
        assert lake.has(StreamBatch("q", 3))
        assert not lake.has(StreamBatch("q", 4))
        assert not lake.has(StreamBatch("other", 3))


def test_one_writer_at_a_time_and_one_commit_for_each_number(tmp_path):
    with Lake(tmp_path), pytest.raises(AlreadyOpen, match="this process"):
        Lake(tmp_path)
    write_new(tmp_path / "file", b"first")
    with pytest.raises(AlreadyExists):
        write_new(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert [one.name for one in tmp_path.glob(".file*")] == []


def damaged_body(path):
    path.write_text(path.read_text().replace('"end":5', '"end":6'))


def truncated(path):
    path.write_text(path.read_text()[:-20])


def other_format(path):
    sealed = json.loads(path.read_text())
    path.write_text(json.dumps({"body": sealed["body"]}))


def gone(path):
    path.unlink()


def of_another_lake(path):
    with Lake(path.parents[2].with_name("twin")) as twin:
        twin.commit([span(0, 5)], [])
        path.write_bytes(next((twin.root / COMMITS).iterdir()).read_bytes())


def forged(path):
    # Sealed as it should be, but not the one that the next commit follows.
    manifest, _ = decode_manifest(path.read_bytes(), "")
    path.write_bytes(encode_manifest(msgspec.structs.replace(manifest, made_at="yesterday"))[0])


@pytest.mark.parametrize(
    "damage", [forged, damaged_body, truncated, other_format, gone, of_another_lake]
)
def test_a_manifest_that_is_not_what_was_written_is_never_believed(tmp_path, damage):
    root = tmp_path / "lake"
    with Lake(root) as lake:
        lake.commit([span(0, 5)], [])
        lake.commit([span(5, 7)], [])
    damage(root / COMMITS / f"{0:020d}.json")
    with pytest.raises(Damaged):
        LakeReader(root).manifests()
    with pytest.raises(Damaged):
        Lake(root)
    # The lock was given back.
    with pytest.raises(Damaged):
        Lake(root)


def test_a_lake_is_what_it_was_made_as(tmp_path):
    with Lake(tmp_path, table=TableFormat.DELTA, split=Split.HOUR):
        pass
    with pytest.raises(Refused, match="has split hour, not day"):
        Lake(tmp_path, split=Split.DAY)
    with pytest.raises(Refused, match="has table delta, not parquet"):
        Lake(tmp_path, table=TableFormat.PARQUET)
    with Lake(tmp_path) as lake:
        assert (lake.identity.table, lake.identity.split) == (TableFormat.DELTA, Split.HOUR)
    with pytest.raises(FileMissing):
        LakeReader(tmp_path / "nowhere")
    with pytest.raises(Refused, match="gs://"):
        store_of("gs://bucket/lake")


GOLDEN = Path(__file__).parent / "golden_manifest.json"
FROZEN = Manifest(
    format=2,
    lake="00112233aabbccdd",
    commit=7,
    previous="de" * 32,
    made_at="2026-01-31T12:00:00.000Z",
    spans=[
        Span(
            topic="orders",
            partition=2,
            start=100,
            end=110,
            rows=8,
            log=0x12345678,
            gap_offsets=2,
            gaps=[Gap(103, 105, "compacted")],
        )
    ],
    files=[
        LakeFile(
            path="topic=orders/date=2026-01-31/p00002-00000000000000000100-00000007.parquet",
            staged="00000000000000000007/a1b2-c3d4/20484-p00002.parquet",
            rows=8,
            size=4321,
            sha256="ad" * 32,
            topic="orders",
            partition=2,
            log=0x12345678,
            first=100,
            last=109,
            keys=2,
            values=3,
            folders={"topic": "orders", "date": "2026-01-31"},
            ranges={"offset": [100, 109]},
        )
    ],
    stream=StreamBatch("q", 3),
    replaced=["topic=orders/date=2026-01-31/p00002-00000000000000000100-00000003.parquet"],
    columns=[Column("offset", "long", nullable=False)],
)


def test_manifests_of_format_2_are_read_and_written_as_ever():
    assert decode_manifest(GOLDEN.read_bytes(), "golden")[0] == FROZEN
    assert encode_manifest(FROZEN)[0] == GOLDEN.read_bytes()
    guide = (Path(__file__).parents[3] / "docs/formats/lake.md").read_text()
    for kind in (Manifest, Span, LakeFile, Column, Checkpoint):
        assert all(f"`{name}`" in guide for name in kind.__struct_fields__), kind
