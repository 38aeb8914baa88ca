"""Jobs with a wrong or an empty selection, no target, or a store that is not whole: one line, and nothing is done."""

import hashlib
import shutil

import pytest

from penstock.cli.exits import Exit

from ..spark.pipelines.rigs import archived, publish

pytestmark = pytest.mark.tier("test")

FOLDERS = {"LAKE", "NEW", "TORN", "FORGED", "PACKED"}
TABLE = [
    # A selection that is wrong.
    ("replay bad --to bad-2 --partition 7", "REFUSED", "no partition bad/7"),
    ("replay bad --to bad-2 --lake LAKE --partition 7", "REFUSED", "no partition bad/7"),
    ("replay none --to bad-2", "REFUSED", "no topic none"),
    ("replay none --to bad-2 --lake LAKE", "REFUSED", "none in the lake; there are bad"),
    ("replay bad --to bad --lake LAKE", "REFUSED", "give an end"),
    ("replay bad --group none", "REFUSED", "none"),
    ("copy none --to bad-2", "REFUSED", "no topic none"),
    ("export none --to NEW", "REFUSED", "no topic none"),
    ("archive restore LAKE none", "REFUSED", "none in the lake; there are bad"),
    ("archive restore LAKE bad --as new --as-of 99", "REFUSED", "no commit 99"),
    ("dlq history none --lake LAKE", "REFUSED", "none.dlq"),
    ("dlq redrive none --all", "REFUSED", "no topic none"),
    ("dlq history bad --lake LAKE", "REFUSED", "bad.dlq"),
    ("archive run none --to NEW --once", "REFUSED", "no topic none"),
    ("archive run none-* --to NEW --once", "REFUSED", "no topic like none-*"),
    ("archive run none --to NEW --once --dry-run", "REFUSED", "no topic none"),
    ("archive run none --to LAKE --once", "REFUSED", "no topic none"),
    ("import PACKED --topic a/b", "REFUSED", "not a topic name"),
    # One that is empty.
    ("replay bad --to bad-2 --until-time 1h", "REFUSED", "no message of bad is in that range"),
    ("replay bad --to bad-2 --lake LAKE --until-time 1h", "REFUSED", "no message of bad is in"),
    ("replay empty --to bad-2", "REFUSED", "no message of empty is in that range"),
    # A target that is missing, or does not fit.
    ("replay bad --to none", "REFUSED", "no topic none"),
    ("replay bad --to none --lake LAKE", "REFUSED", "no topic none"),
    ("copy bad --to none", "REFUSED", "no topic none"),
    ("export bad --to LAKE", "REFUSED", "is there already"),
    ("export bad --to LAKE/_penstock/lake.json/x", "REFUSED", "Not a directory"),
    ("archive restore LAKE bad --as bad-2", "REFUSED", "has 3 partitions, the lake has 2"),
    ("import PACKED --topic bad-2", "REFUSED", "has 3 partitions, not 2"),
    ("import PACKED", "REFUSED", "bad has messages already"),
    # A store that is missing, or not whole.
    ("replay bad --to bad-2 --lake NEW", "REFUSED", "does not exist"),
    ("archive restore NEW bad", "REFUSED", "does not exist"),
    ("archive compact NEW", "REFUSED", "does not exist"),
    ("archive vacuum NEW", "REFUSED", "does not exist"),
    ("archive verify NEW", "REFUSED", "does not exist"),
    ("archive show NEW", "REFUSED", "does not exist"),
    ("dlq history bad --lake NEW", "REFUSED", "does not exist"),
    ("import LAKE", "REFUSED", "topic.json"),
    ("replay lost --to bad-2 --lake TORN", "REFUSED", "does not exist"),
    ("archive restore TORN lost --as new", "REFUSED", "does not exist"),
    ("replay lost --to bad-2 --lake FORGED", "FOUND_PROBLEMS", "so nothing is replayed"),
    ("archive restore FORGED lost --as new", "FOUND_PROBLEMS", "so nothing is restored"),
]


def content(folder):
    return {
        str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in folder.rglob("*")
        if one.is_file() and one.name != "lock"
    }


def test_what_cannot_be_done_is_one_line_and_nothing_is_half_done(call, url, client, tmp_path):
    client.create_topic("bad", partitions=2)
    client.create_topic("bad-2", partitions=3)
    client.create_topic("lost", partitions=1)
    publish(client, "bad", 20)
    publish(client, "lost", 20)
    client.create_topic("empty", partitions=1)
    archived(tmp_path / "LAKE", url, "bad")
    assert call("export", "bad", "--to", str(tmp_path / "PACKED")).code == Exit.OK
    archived(tmp_path / "TORN", url, "lost")
    shutil.copytree(tmp_path / "TORN", tmp_path / "FORGED")
    client.delete_topic("lost")
    next((tmp_path / "TORN").rglob("*.parquet")).unlink()
    forged = next((tmp_path / "FORGED").rglob("*.parquet"))
    data = bytearray(forged.read_bytes())
    data[60] ^= 1
    forged.write_bytes(data)
    before = content(tmp_path)
    topics = {name: client.topic(name).total_messages for name in client.topics()}
    for line, code, why in TABLE:
        words = [
            str(tmp_path / one) if one.split("/")[0] in FOLDERS else one for one in line.split()
        ]
        done = call(*words)
        assert (done.code, done.out) == (Exit[code], ""), (line, done)
        assert why in done.err, (line, done)
        assert len(done.err.splitlines()) == 1, (line, done)
        assert content(tmp_path) == before, line
    assert {name: client.topic(name).total_messages for name in client.topics()} == topics
    assert client.topic("bad-2").total_messages == 0
