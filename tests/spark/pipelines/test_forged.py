"""A lake that was changed on purpose, with every hash made to fit, is found out by the broker or by a noted head."""

import json
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli.exits import Exit, run
from penstock.cli.root import root as command
from penstock.errors import Damaged
from penstock.spark.pipelines.file_hash import hash_of
from penstock.spark.pipelines.lake import COMMITS, LakeColumns, LakeReader, commit_path
from penstock.spark.pipelines.manifest import Manifest, encode_manifest
from penstock.spark.pipelines.rows import content_checksum
from penstock.spark.pipelines.verify import verify

from .rigs import archived, publish


@pytest.fixture(scope="module")
def good(broker, tmp_path_factory):
    from penstock.client import Client

    root = tmp_path_factory.mktemp("good") / "lake"
    with Client(broker) as client:
        client.create_topic("forged", partitions=1)
        publish(client, "forged", 100)
        archived(root, broker, "forged", commit_messages_max=40)
    return root


@pytest.fixture
def root(good, tmp_path):
    return shutil.copytree(good, tmp_path / "lake")


def resealed(root, change):
    """Change the first manifest, and seal all of them anew, each with the hash of the one before."""
    before = ""
    for path in sorted((root / COMMITS).iterdir()):
        body = json.loads(path.read_bytes())["body"]
        if body["commit"] == 0:
            change(body)
        body["previous"] = before
        data, before = encode_manifest(msgspec.convert(body, Manifest))
        path.write_bytes(data)


def other_rows(root, change):
    """Change the rows of the first file, and everything that would tell."""
    files = LakeReader(root)
    path = Path(files.path_of(files.manifests()[0].files[0]))
    table = change(pq.ParquetFile(path).read())
    pq.write_table(table, path, store_schema=False)
    size, sha256 = hash_of(files.store, str(path.relative_to(root)))
    sums = {"keys": table.column("key"), "values": table.column("value")}
    crcs = {name: content_checksum(one.combine_chunks()) for name, one in sums.items()}

    def agree(body):
        last = table.column("offset")[-1].as_py()
        new = {"size": size, "sha256": sha256, "rows": table.num_rows, "last": last, **crcs}
        body["files"][0] |= new
        body["spans"][0]["rows"] = table.num_rows

    resealed(root, agree)


def with_column(table, name, change):
    values = table.column(name).to_pylist()
    values[7] = change(values[7])
    place = table.schema.get_field_index(name)
    field = table.schema.field(name)
    return table.set_column(place, field, pa.array(values, field.type))


FORGED = [
    ("value", lambda _: b"paid", "offset 7 has another value in the lake than in the broker"),
    ("key", lambda _: None, "offset 7 has another key"),
    ("nanos", lambda one: one + 1, "offset 7 has another nanos"),
    ("headers", lambda _: [{"key": "a", "value": b"1"}], "offset 7 has another headers"),
    ("priority", lambda one: one + 1, "offset 7 has another priority"),
]


@pytest.mark.parametrize(("column", "change", "said"), FORGED, ids=[one[0] for one in FORGED])
def test_a_row_that_was_changed_is_found_out_by_the_broker(client, root, column, change, said):
    head = verify(LakeReader(root)).head
    other_rows(root, lambda table: with_column(table, column, change))
    alone = verify(LakeReader(root), is_content_read=True)
    assert alone.problems == [], "by itself the lake is consistent"
    (problem,) = verify(LakeReader(root), client, is_content_read=True).problems
    assert said in problem
    # Who has noted the head needs no broker.
    (problem,) = verify(LakeReader(root), head=head).problems
    assert "the lake was rewritten since it was noted" in problem


def test_rows_that_were_made_up_or_taken_out_are_found_out(client, root):
    shutil.copytree(root, root.with_name("shorter"))
    other_rows(root, lambda table: table.slice(0, 39))
    problems = verify(LakeReader(root), client, is_content_read=True).problems
    assert any("offset 39" in one for one in problems), problems

    def excuse(body):
        gap = {"start": 39, "end": 40, "reason": "expired"}
        body["spans"][0] |= {"gap_offsets": 1, "gaps": [gap]}

    resealed(root, excuse)
    problems = verify(LakeReader(root), client, is_content_read=True).problems
    assert "forged/0: offset 39 is in the broker, not in the lake" in problems


def elsewhere(root, name, value):
    """Moves the first file to another folder, with everything that would tell."""
    (file,) = LakeReader(root).manifests()[0].files
    new = file.path.replace(f"{name}={file.folders[name]}", f"{name}={value}")
    (root / new).parent.mkdir(parents=True)
    (root / file.path).rename(root / new)
    folders = {**file.folders, name: value}
    resealed(root, lambda body: body["files"][0].update(path=new, folders=folders))


def test_a_file_in_the_folder_of_another_topic_or_day_is_found_out(client, root):
    shutil.copytree(root, root.with_name("other"))
    elsewhere(root, "topic", "paid")
    (problem, *_) = verify(LakeReader(root), client).problems
    assert problem.endswith("it is not in the folder of its topic, forged")
    elsewhere(root.with_name("other"), "date", "1999-01-31")
    (problem,) = verify(LakeReader(root.with_name("other")), is_content_read=True).problems
    assert ": it has messages of forged/" in problem


def test_a_file_in_the_folder_of_another_value_is_found_out(client, topic, tmp_path):
    sizes = {"type": "record", "name": "Size", "fields": [{"name": "size", "type": "int"}]}
    schema = client.register_schema("size-value", json.dumps(sizes))
    client.publish(topic, schema.encode({"size": 7}))
    archived(
        tmp_path,
        client.url,
        topic,
        columns=LakeColumns("size-value", schema.schema_id, "size"),
    )
    assert verify(LakeReader(tmp_path), is_content_read=True).problems == []
    elsewhere(tmp_path, "size", "8")
    (problem,) = verify(LakeReader(tmp_path), is_content_read=True).problems
    assert ": it has messages of " in problem


def test_rows_of_no_topic_in_a_commit_that_was_added_are_found_out(client, root):
    files = LakeReader(root)
    head = verify(files).head
    (file,) = files.manifests()[0].files
    shutil.copy(files.path_of(file), root / "rows-1.parquet")
    made_up = msgspec.structs.replace(file, path="rows-1.parquet", topic="", folders={}, log=0)
    last = files.manifests()[-1]
    added = msgspec.structs.replace(
        last, commit=last.commit + 1, previous=head, spans=[], files=[made_up], columns=[]
    )
    (root / commit_path(added.commit)).write_bytes(encode_manifest(added)[0])
    (problem,) = verify(LakeReader(root), client, is_content_read=True, head=head).problems
    assert problem == "rows-1.parquet: no commit has a span of it"


def test_a_path_that_leaves_the_lake_is_damage_for_every_command(root):
    (root.parent / "precious").write_text("mine")
    resealed(root, lambda body: body["files"][0].update(path="../precious"))
    for words in (["verify", "--offline"], ["vacuum"], ["compact"]):
        assert run(command, ["archive", words[0], str(root), *words[1:]]) == Exit.FOUND_PROBLEMS
    assert (root.parent / "precious").read_text() == "mine"


def test_gaps_that_are_counted_and_not_listed_are_a_problem(root):
    other_rows(root, lambda table: table.slice(0, 39))
    resealed(root, lambda body: body["spans"][0].update(gap_offsets=1, gaps=[]))
    (problem,) = verify(LakeReader(root)).problems
    assert "offsets 39..40 are missing for no known reason" in problem


def test_a_manifest_or_a_file_that_was_changed_alone_breaks_the_chain(root):
    path = sorted((root / COMMITS).iterdir())[1]
    body = json.loads(path.read_bytes())["body"]
    body["files"][0]["rows"] += 1
    path.write_bytes(encode_manifest(msgspec.convert(body, Manifest))[0])
    with pytest.raises(Damaged, match="does not follow the commit before: one was replaced"):
        verify(LakeReader(root))


def test_a_head_that_was_noted_earlier_is_still_there_and_the_command_says_so(good, capfd):
    heads = [own for _, own in LakeReader(good).history()]
    for head in heads:
        assert verify(LakeReader(good), head=head).problems == []
    assert (
        run(command, ["archive", "verify", str(good), "--offline", "--head", heads[0]]) == Exit.OK
    )
    assert f"head: {heads[-1]}" in capfd.readouterr().out
    wrong = ["archive", "verify", str(good), "--offline", "--head", "ab" * 32]
    assert run(command, wrong) == Exit.FOUND_PROBLEMS
