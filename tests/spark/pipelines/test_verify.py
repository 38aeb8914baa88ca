"""Verify finds whatever is wrong with a lake: each way to spoil one is noticed, and named."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.pipelines.file_hash import hash_of
from penstock.spark.pipelines.lake import COMMITS, LakeReader
from penstock.spark.pipelines.manifest import Gap, Manifest, Span, encode_manifest
from penstock.spark.pipelines.verify import LakeReport, check_offsets, verify

from .rigs import archived, publish


@pytest.fixture(scope="module")
def good(broker, tmp_path_factory):
    """A lake of two commits, and the address of its broker."""
    from penstock.client import Client

    root = tmp_path_factory.mktemp("good") / "lake"
    with Client(broker) as client:
        client.create_topic("spoiled", partitions=1)
        publish(client, "spoiled", 100)
        archived(root, broker, "spoiled", commit_messages_max=60)
    return root


@pytest.fixture
def root(good, tmp_path):
    return shutil.copytree(good, tmp_path / "lake")


def rewrite(root, change):
    """Change the last manifest, and seal it as if it had always been so."""
    path = max((root / COMMITS).iterdir())
    body = json.loads(path.read_bytes())["body"]
    change(body)
    import msgspec

    path.write_bytes(encode_manifest(msgspec.convert(body, Manifest))[0])


def last_file(root):
    files = LakeReader(root)
    return Path(files.path_of(files.manifests()[-1].files[0]))


def with_rows(root, change):
    """Other rows in the last file, and a manifest that knows its size and checksum."""
    path = last_file(root)
    table = change(pq.ParquetFile(path).read())
    pq.write_table(table, path, store_schema=False)
    store = LakeReader(root).store
    size, sha256 = hash_of(store, str(path.relative_to(root)))

    def agree(body):
        body["files"][0] |= {"size": size, "sha256": sha256, "rows": table.num_rows}

    rewrite(root, agree)


def flipped(root):
    path = last_file(root)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def gone(root):
    last_file(root).unlink()


def longer(root):
    with last_file(root).open("ab") as file:
        file.write(b"x")


def stray(root):
    shutil.copy(last_file(root), last_file(root).with_name("again.parquet"))


def lost_row(root):
    with_rows(root, lambda table: pa.concat_tables([table.slice(0, 5), table.slice(6)]))


def lost_last_row(root):
    with_rows(root, lambda table: table.slice(0, table.num_rows - 1))


def doubled_row(root):
    with_rows(root, lambda table: pa.concat_tables([table, table.slice(3, 1)]))


def other_value(root):
    def changed(table):
        values = [b"other", *table.column("value").to_pylist()[1:]]
        place = table.schema.get_field_index("value")
        return table.set_column(place, table.schema.field("value"), [values])

    with_rows(root, changed)


def span_left_out(root):
    def skip(body):
        body["spans"][0]["start"] += 1
        body["spans"][0]["rows"] -= 1

    rewrite(root, skip)


def other_log(root):
    rewrite(root, lambda body: body["spans"][0].update(log=1))


SPOILED = [
    (flipped, "its SHA-256 is"),
    (gone, "it is missing"),
    (longer, "bytes, the manifest says"),
    (stray, "no commit names this file"),
    (lost_row, "offsets 65..66 are missing for no known reason"),
    (lost_last_row, "offsets 99..100 are missing for no known reason"),
    (doubled_row, "offset 63 is there twice"),
    (other_value, "its keys or values are not those that were read"),
    (span_left_out, "goes on at 61, not at 60"),
    (other_log, "spoiled/0 goes on at 60, not at 0"),
]


@pytest.mark.parametrize(("spoil", "said"), SPOILED, ids=[one.__name__ for one, _ in SPOILED])
def test_a_spoiled_lake_is_found_out(root, spoil, said):
    assert verify(LakeReader(root), is_content_read=True).problems == []
    spoil(root)
    problems = verify(LakeReader(root), is_content_read=True).problems
    assert any(said in one for one in problems), problems


def test_an_archive_may_go_on_while_its_lake_is_verified(client, topic, tmp_path):
    publish(client, topic, 100, partition=0)
    archived(tmp_path, client.url, topic)

    def go_on(done, of):
        publish(client, topic, 50, first=100)
        archived(tmp_path, client.url, topic)

    report = verify(LakeReader(tmp_path), client, is_content_read=True, on_file=go_on)
    assert (report.commits, report.problems) == (1, [])
    assert verify(LakeReader(tmp_path), client).commits == 2


@pytest.mark.parametrize("what", ["retention", "deletion", "another"])
def test_what_goes_from_the_broker_while_a_lake_is_verified_is_no_problem(
    client, topic, tmp_path, what
):
    name = f"{topic[:60]}.{what}"
    client.create_topic(name, partitions=1, segment_messages_max=100, retention_segments_min=1)
    for first in range(0, 1000, 100):
        publish(client, name, 100, first=first)
    archived(tmp_path, client.url, name)

    def goes(done, of):
        if what == "retention":
            client.configure_topic(name, retention_segments=2)
            client.compact_topic(name)
            assert client.topic(name).ends(0).earliest > 0
            return
        client.delete_topic(name)
        if what == "another":
            client.create_topic(name, partitions=1)
            publish(client, name, 5, first=5000)

    report = verify(LakeReader(tmp_path), client, is_content_read=True, on_file=goes)
    assert report.problems == []
    assert (report.compared > 0) is (what == "retention")


def test_a_gap_that_the_broker_can_still_show_is_a_loss(client, root):
    with_rows(root, lambda table: pa.concat_tables([table.slice(0, 5), table.slice(6)]))

    def excuse(body):
        gap = {"start": 65, "end": 66, "reason": "compacted"}
        body["spans"][0] |= {"gap_offsets": 1, "gaps": [gap], "rows": 39}

    rewrite(root, excuse)
    assert verify(LakeReader(root)).problems == [], "by itself the lake is consistent"
    (problem,) = verify(LakeReader(root), client).problems
    assert problem == "spoiled/0: offset 65 is in the broker, not in the lake"


def test_more_gaps_than_are_listed_are_counted():
    import numpy as np

    span = Span(
        topic="t",
        partition=0,
        start=0,
        end=10,
        rows=5,
        log=1,
        gap_offsets=5,
        gaps=[Gap(0, 1, "compacted"), Gap(2, 3, "compacted")],
    )
    report = LakeReport("lake")
    check_offsets(span, np.array([1, 3, 5, 7, 9]), 0, report)
    assert report.problems == []
    report = LakeReport("lake")
    check_offsets(span, np.array([1, 3, 5, 7]), 0, report)
    assert "6 offsets are missing, the manifest says 5" in report.problems[-1]
