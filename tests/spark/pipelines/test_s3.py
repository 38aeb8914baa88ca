"""A lake in a bucket, through a server that speaks the protocol of S3: one winner, and one line when it is gone."""

import json
import socket
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Event, Thread

import pyarrow as pa
import pytest

from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.errors import AlreadyExists, Forbidden, Refused, Unavailable
from penstock.spark.pipelines import s3_store
from penstock.spark.pipelines.archive import Archive, ArchiveOptions
from penstock.spark.pipelines.delta import publish as to_delta
from penstock.spark.pipelines.lake import Lake, LakeReader, TableFormat, commit_path
from penstock.spark.pipelines.merge import compact
from penstock.spark.pipelines.remote import Remote
from penstock.spark.pipelines.restore import plan_restore, restore
from penstock.spark.pipelines.store import store_of
from penstock.spark.pipelines.vacuum import plan_vacuum, vacuum
from penstock.spark.pipelines.verify import verify
from penstock.spark.pipelines.views import FileRead, row_schema

from .conftest import SECRET, use_store
from .rigs import here, publish

pytestmark = pytest.mark.xdist_group("s3")


def archived(lake, url, topic, spread=here, **more):
    options = {name: more.pop(name) for name in ("table", "publish") if name in more}
    with Lake(lake, **options) as opened:
        archive = Archive(
            opened, Remote(url, retries=1), spread, ArchiveOptions(topics=(topic,), **more)
        )
        archive.run_once(Event())
    return archive


def test_a_lake_in_a_bucket_has_every_message_and_the_same_proof(client, topic, bucket, capfd):
    publish(client, topic, 200)
    words = ["archive", "run", topic, "--to", bucket, "--once", "--server", client.url]
    assert run(root, words) == Exit.OK
    publish(client, topic, 100, first=200)
    assert archived(bucket, client.url, topic).messages == 100
    report = verify(LakeReader(bucket), client, is_content_read=True)
    assert (report.problems, report.rows, report.compared) == ([], 300, 300)
    with Lake(bucket) as lake:
        (merge,) = compact(lake)
        assert (len(merge.replaced), len(merge.files)) == (4, 2)
        # What an attempt that was cut off has left is no part of the lake, and goes with the merged files.
        with lake.store.open_write(f"topic={topic}/p00000-{0:020d}-{1:08d}-abcd.parquet") as file:
            file.write(b"half")
        with lake.store.open_write("mine.parquet") as file:
            file.write(b"not of this program")
        removals = plan_vacuum(lake, timedelta(0))
        assert sorted(one.reason for one in removals) == ["never committed", *["replaced"] * 4]
        vacuum(lake, removals)
        assert {one.path for one in lake.store.files()} == {"mine.parquet", *lake.now.files}
    assert verify(LakeReader(bucket), client, is_content_read=True).problems == []
    # What a query reads in a task of Spark, which has no jars for a bucket.
    state = LakeReader(bucket).state()
    files = list(state.files.values())
    read = FileRead(bucket, files, row_schema(state.columns, files[0]))
    numbers = iter([pa.record_batch({"id": list(range(len(files)))})])
    rows = pa.Table.from_batches(read(numbers))
    assert (rows.num_rows, set(rows.column("topic").to_pylist())) == (300, {topic})
    planned = plan_restore(client, LakeReader(bucket), topic, f"{topic[:100]}-back")
    assert restore(client, LakeReader(bucket), planned) == 300
    assert run(root, ["archive", "show", bucket, "--json"]) == Exit.OK
    lines = [json.loads(one) for one in capfd.readouterr().out.splitlines() if "made_at" in one]
    assert [one["kind"] for one in lines] == ["append", "append", "merge"]


def test_vacuum_keeps_what_an_archive_is_just_writing(client, topic, bucket):
    publish(client, topic, 50)
    archived(bucket, client.url, topic)
    publish(client, topic, 20, first=50)

    def emptied(call, tasks):
        done = here(call, tasks)
        with Lake(bucket) as lake:
            vacuum(lake, plan_vacuum(lake, timedelta(0)))
        return done

    archived(bucket, client.url, topic, emptied)
    report = verify(LakeReader(bucket), client, is_content_read=True)
    assert (report.problems, report.rows) == ([], 70)
    with Lake(bucket) as lake:
        path = f"topic={topic}/p00000-{0:020d}-{lake.next_commit:08d}-abcd.parquet"
        with lake.store.open_write(path) as file:
            file.write(b"given up")
        later = datetime.now(UTC) + timedelta(days=2)
        assert [one.path for one in plan_vacuum(lake, timedelta(0), later)] == [path]


def test_of_two_writers_one_wins_and_the_other_leaves_nothing(client, topic, bucket):
    publish(client, topic, 50)

    def overtaken(call, tasks):
        done = here(call, tasks)
        archived(bucket, client.url, topic)
        return done

    with pytest.raises(Refused, match="another writer, which made commit 0 first"):
        archived(bucket, client.url, topic, overtaken)
    report = verify(LakeReader(bucket), client, is_content_read=True)
    assert (report.problems, report.rows, report.commits) == ([], 50, 1)
    store = store_of(bucket)
    with pytest.raises(AlreadyExists):
        store.create(commit_path(0), b"other")
    store.create(commit_path(0), store.read(commit_path(0)))  # The repetition of a request.


def test_a_delta_table_in_a_bucket(client, topic, bucket):
    from deltalake import DeltaTable

    publish(client, topic, 60)
    archived(
        bucket, client.url, topic, table=TableFormat.DELTA, publish=to_delta, commit_messages_max=30
    )
    with Lake(bucket, publish=to_delta) as lake:
        compact(lake)
    table = DeltaTable(bucket, storage_options=s3_store.storage_options())
    assert table.to_pyarrow_table(columns=["offset"]).num_rows == 60
    assert len(table.file_uris()) == 2


def test_a_store_that_goes_away_is_one_line_and_nothing_is_half_done(
    client, topic, stores, monkeypatch, capfd
):
    server, address = stores()
    use_store(monkeypatch, address)
    monkeypatch.setattr(s3_store, "RETRIES", 1)
    lake = "s3://bucket/lake"
    publish(client, topic, 50)
    archived(lake, client.url, topic)
    publish(client, topic, 50, first=50)

    def leaving(call, tasks):
        server.stop()
        return here(call, tasks)

    with pytest.raises(Unavailable, match=r"s3://bucket/lake/.*the store failed"):
        archived(lake, client.url, topic, leaving)
    capfd.readouterr()
    words = ["archive", "run", topic, "--to", lake, "--once", "--server", client.url]
    assert run(root, words) == Exit.UNAVAILABLE
    found = capfd.readouterr()
    assert found.err.count("\n") == 1
    assert "the store failed" in found.err
    assert SECRET not in found.err + found.out


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://key:secret@bucket/lake", "credentials of a store come from the environment"),
        ("s3:///lake", "the address of a lake is s3://bucket/path"),
        ("s3://bucket/lake?x=1", "the address of a lake is s3://bucket/path"),
    ],
)
def test_a_wrong_address_is_refused_and_a_secret_in_it_is_not_printed(address, said):
    with pytest.raises(Refused, match=said) as found:
        store_of(address)
    assert "secret" not in str(found.value)


@pytest.fixture
def refusing():
    """Returns the address of a store that refuses every request."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(403)
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 the server calls it by this name

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_store_that_refuses_and_one_that_is_gone_are_told_apart(refusing, monkeypatch):
    monkeypatch.setattr(s3_store, "RETRIES", 1)
    path = "topic=403/ACCESS_DENIED-403.parquet"
    # Bound, so that no other program gets the port, and not listening.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for address, error in ((refusing, Forbidden), (gone, Unavailable)):
            use_store(monkeypatch, address)
            store = store_of("s3://bucket/lake")
            for ask in (store.read, store.open_read):
                with pytest.raises(error):
                    ask(path)
