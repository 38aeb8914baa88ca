"""The store of a lake goes away in the middle of each job: one line, and the next run does all of it, once."""

from functools import wraps

import pytest

from penstock.cli.exits import Exit
from penstock.spark.pipelines import s3_store
from penstock.spark.pipelines.lake import LakeReader
from penstock.spark.pipelines.verify import verify

from .conftest import SECRET, use_store
from .rigs import archived, places, publish, visible

pytestmark = pytest.mark.tier("test")

LAKE = "s3://bucket/gone"
# A job, and the calls of the store after which the store is gone.
TABLE = [
    (f"archive run gone --to {LAKE} --once", "open_write", 1),
    (f"archive verify {LAKE}", "read", 2),
    (f"archive verify {LAKE}", "open_read", 2),
    (f"archive verify {LAKE} --content", "open_read", 5),
    (f"archive compact {LAKE}", "open_read", 2),
    (f"archive compact {LAKE}", "open_write", 1),
    (f"archive restore {LAKE} lost --as lost-back", "open_read", 2),
    (f"archive restore {LAKE} lost --as lost-back", "open_read", 3),
    (f"replay lost --to lost-again --lake {LAKE}", "open_read", 2),
    (f"replay lost --to lost-again --lake {LAKE}", "open_read", 3),
    (f"dlq history lost --lake {LAKE}", "open_read", 1),
    (f"archive vacuum {LAKE} --keep 0s", "names", 2),
]


def stopped_after(patch, method, calls, stop):
    """Stops the store when one of its methods has been called so often. Returns how many calls are left."""
    whole, left = getattr(s3_store.S3Store, method), [calls]

    @wraps(whole)
    def counted(*words, **more):
        found = whole(*words, **more)
        left[0] -= 1
        if left[0] == 0:
            stop()
        return found

    patch.setattr(s3_store.S3Store, method, counted)
    return left


def test_a_store_that_goes_away_in_the_middle_is_one_line(client, stores, said, monkeypatch):
    monkeypatch.setattr(s3_store, "RETRIES", 1)
    server = ("--server", client.url)
    topics = ("gone", "lost", "lost.dlq")
    for name in (*topics, "lost-again"):
        client.create_topic(name, partitions=1)
    # Every server has the buckets of this process.
    store, address = stores()
    use_store(monkeypatch, address)
    for first in (0, 20):
        for name in topics:
            publish(client, name, 20, first=first)
        archived(LAKE, client.url, *topics)
    publish(client, "gone", 10, first=40)
    client.delete_topic("lost")
    before = places(LAKE)
    for line, method, calls in TABLE:
        with pytest.MonkeyPatch.context() as patch:
            left = stopped_after(patch, method, calls, store.stop)
            text = said(*line.split(), *server, code=Exit.UNAVAILABLE)
        assert left[0] <= 0, (line, "the store was in use")
        assert len(text.splitlines()) == 1, (line, text)
        assert "the store failed" in text, (line, text)
        assert LAKE in text, (line, text)
        assert SECRET not in text
        store, address = stores()
        use_store(monkeypatch, address)
    assert places(LAKE) == before
    for line in dict.fromkeys(line for line, _, _ in TABLE):
        said(*line.split(), *server)
    report = verify(LakeReader(LAKE), client, is_content_read=True)
    assert (report.problems, report.rows) == ([], 130)
    assert places(LAKE).total() == 130
    assert len(list(LakeReader(LAKE).store.files())) == report.files
    for name in ("lost-back", "lost-again"):
        values = [message.value for _, message in client.read(name)]
        assert values == [f"value {one}".encode() for one in range(40)], name
    assert visible(client, "gone").total() == 50
