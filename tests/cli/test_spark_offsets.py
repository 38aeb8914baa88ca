"""`penstock spark offsets` reads where a Kafka source is from a checkpoint as Spark writes it."""

import json
from pathlib import Path

import pytest

from penstock.cli.exits import Exit
from penstock.spark.option_reader import UsedBy
from penstock.spark.options import parse_options

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1769860800000,"conf":{}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
ORDERS = '{"orders":{"0":23,"1":17}}'
PAYMENTS = '{"payments":{"2":4},"refunds":{"0":9}}'
FILES = '{"logOffset":3}'


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint with micro-batches of these sources; the last of `uncommitted` has no commit."""

    def make(*batches: tuple[str, ...], uncommitted: int = 0, version: str = "v1") -> Path:
        directory = tmp_path / "checkpoint"
        for name in ("offsets", "commits", "sources"):
            (directory / name).mkdir(parents=True)
        for number, sources in enumerate(batches):
            text = "\n".join((version, METADATA, *sources))
            (directory / "offsets" / str(number)).write_text(text)
            (directory / "offsets" / f".{number}.crc").write_bytes(b"crc\x00")
            if number < len(batches) - uncommitted:
                (directory / "commits" / str(number)).write_text(COMMIT)
        return directory

    return make


def later(number: int) -> str:
    return json.dumps({"orders": {"0": number}}, separators=(",", ":"))


def test_the_last_committed_batch_as_the_option_of_the_source(run, checkpoint):
    # As numbers: batch 10 is later than batch 9.
    path = checkpoint(*((later(number),) for number in range(11)))
    done = run("spark", "offsets", str(path))
    assert (done.code, done.out) == (Exit.OK, '{"orders": {"0": 10}}\n')
    given = {"subscribe": "orders", "startingOffsets": done.out}
    assert parse_options(given, UsedBy.STREAM).start.offsets == (("orders", ((0, 10),)),)


def test_a_batch_that_did_not_end_is_read_again(run, checkpoint):
    path = checkpoint((later(3),), (later(7),), (later(9),), uncommitted=1)
    (path / "offsets" / ".3.0a1b.tmp").write_text("v1")
    done = run("spark", "offsets", str(path), "--json")
    assert json.loads(done.out) == {
        "batch": 1,
        "source": "0",
        "starting_offsets": {"orders": {"0": 7}},
    }


def test_one_kafka_source_among_others_is_meant(run, checkpoint):
    done = run("spark", "offsets", str(checkpoint(("-", FILES, "12", ORDERS))), "--json")
    found = json.loads(done.out)
    assert (found["source"], found["starting_offsets"]) == ("3", json.loads(ORDERS))


@pytest.mark.parametrize(
    ("version", "sources", "names"),
    [
        ("v1", (ORDERS, FILES, PAYMENTS), ("0", "2")),
        ("v2", (f"shop:{ORDERS}", f"files:{FILES}", f"bank:{PAYMENTS}"), ("shop", "bank")),
    ],
)
def test_of_several_kafka_sources_one_is_chosen(run, checkpoint, version, sources, names):
    path = checkpoint(sources, version=version)
    shop, bank = names
    refused = run("spark", "offsets", str(path))
    assert (refused.code, refused.out) == (Exit.REFUSED, "")
    assert f"--source: {shop} (orders), {bank} (payments, refunds)" in refused.err
    done = run("spark", "offsets", str(path), "--source", bank)
    assert (done.code, json.loads(done.out)) == (Exit.OK, json.loads(PAYMENTS))
    wrong = run("spark", "offsets", str(path), "--source", "9")
    assert wrong.code == Exit.REFUSED
    assert f"no source '9' of Kafka; there are: {shop} (orders)" in wrong.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"next":{"orders/0":3},"ids":{"orders":7}}', "no source of"),
        ('{"orders":{"0":"7"}}', "no source of"),
        ('{"orders":{"0":7}', "no source of"),
        ("{}", "no source of"),
    ],
)
def test_sources_that_are_not_kafkas_are_refused(run, checkpoint, line, says):
    done = run("spark", "offsets", str(checkpoint((line,))))
    assert (done.code, done.out, done.err.count("\n")) == (Exit.REFUSED, "", 1)
    assert says in done.err


def test_what_is_no_checkpoint_is_refused_by_name(run, checkpoint, tmp_path):
    missing = run("spark", "offsets", str(tmp_path / "not-there"))
    assert missing.code == Exit.REFUSED
    assert "not-there does not exist" in missing.err
    other = run("spark", "offsets", str(tmp_path))
    assert other.code == Exit.REFUSED
    assert "is not the checkpoint of a stream: it has no directory offsets" in other.err
    path = checkpoint((ORDERS,), uncommitted=1)
    begun = run("spark", "offsets", str(path))
    assert begun.code == Exit.REFUSED
    assert "no micro-batch of" in begun.err
    (path / "commits" / "0").write_text(COMMIT)
    (path / "offsets" / "0").write_text("v3\n{}\n")
    newer = run("spark", "offsets", str(path))
    assert newer.code == Exit.REFUSED
    assert "begins with 'v3', and not with v1 or v2" in newer.err
