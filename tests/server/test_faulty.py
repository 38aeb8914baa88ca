"""A broker with a faulty partition, as clients see it."""

import json
import shutil
import urllib.error
import urllib.request

import pytest

import penstock
from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.client import Client
from penstock.errors import PartitionFaulty, PenstockError
from penstock.testing.server import running_server

from ..broker.losses import with_version


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    data = tmp_path_factory.mktemp("faulty") / "data"
    with penstock.Broker(data) as broker:
        broker.create_topic("t", partitions=2)
        broker.open_group("t", "g")
        for number in range(2):
            broker.publish("t", b"x", partition=number)
    shutil.rmtree(data / "topics" / "default" / "t.1" / "partition-1" / "messages")
    with running_server(data) as address:
        yield address


@pytest.fixture
def http(url):
    with Client(url) as client:
        address = client.server().http

    def ask(path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, data=data)
        if data is not None:
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.loads(answer.read()), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read()), error.headers

    ask.address = address
    return ask


def test_a_publish_to_it_is_503_with_a_code_and_no_advice_to_retry(http):
    message = {"value": "y", "partition": 1}
    status, body, headers = http("/topics/t/messages", {"messages": [message]})
    assert status == 503
    found = body.get("results", [body])[0]
    assert found["error"] == "PARTITION_FAULTY"
    assert (found["topic"], found["partition"]) == ("t", 1)
    assert "partition-1/messages" in found["path"]
    assert found["reason"]
    assert "retry-after" not in headers


def test_reading_it_is_503_and_reading_the_other_is_not(http):
    assert http("/topics/t/partitions/1/messages?offset=0")[0] == 503
    status, body, _ = http("/topics/t/partitions/0/messages?offset=0")
    assert (status, len(body["messages"]) >= 1) == (200, True)


def test_describe_and_lag_show_it(http):
    _, topic, _ = http("/topics/t")
    assert topic["partitions"] == 2
    assert list(topic["partition_offsets"]) == ["0"]
    assert "partition-1" in topic["faulty"]["1"]
    _, parts, _ = http("/topics/t/partitions")
    assert ["fault" in one for one in parts["partitions"]] == [False, True]
    _, lag, _ = http("/groups/g/lag")
    assert [(one["topic"], one["partition"]) for one in lag["faulty"]] == [("t", 1)]


def test_the_client_gets_the_error_by_its_name(url):
    with Client(url) as client:
        with pytest.raises(PartitionFaulty):
            client.publish("t", b"y", partition=1)
        assert {client.publish("t", b"y").partition for _ in range(4)} == {0}


def test_a_producer_sends_messages_without_a_key_to_the_other(url, capsys):
    with Client(url) as client, client.producer("t") as producer:
        assert {producer.send(b"y").result().partition for _ in range(6)} == {0}
    for _ in range(3):
        assert run(root, ["produce", "t", "y", "--server", url]) == Exit.OK
    assert capsys.readouterr().out == "stored 1\n" * 3


@pytest.mark.parametrize(
    "path", ["/metrics", "/readyz", "/stats", "/delay/stats", "/priority/stats"]
)
def test_the_rest_of_the_server_goes_on(http, path):
    with urllib.request.urlopen(http.address + path) as answer:
        assert answer.status == 200


def test_who_reads_all_of_its_topic_is_told_and_the_rest_can_be_read(url, capsys):
    with Client(url) as client:
        read: list[int] = []
        with pytest.raises(PartitionFaulty) as told:
            read.extend(number for number, _ in client.read("t"))
        assert 0 in read
        with pytest.raises(PartitionFaulty):
            next(iter(client.read("t", follow=True)))
        assert (told.value.fields["topic"], told.value.fields["partition"]) == ("t", 1)
        assert "partition-1/messages" in told.value.fields["path"]
        assert [number for number, _ in client.read("t", partition=0)][:1] == [0]
    for more in ([], ["--last", "1"]):
        assert run(root, ["consume", "t", *more, "--server", url]) == Exit.FOUND_PROBLEMS
        printed = capsys.readouterr()
        assert printed.out.startswith("0/")
        assert len(printed.err.splitlines()) == 1
    assert run(root, ["consume", "t", "--count", "1", "--server", url]) == Exit.OK


def test_the_client_and_the_command_line_show_it(url, capsys):
    with Client(url) as client:
        assert list(client.topic("t").faulty) == ["1"]
        assert [(one.topic, one.partition) for one in client.lag("g").faulty] == [("t", 1)]
    assert run(root, ["topic", "show", "t", "--server", url]) == Exit.OK
    assert "partition 1 is FAULTY" in capsys.readouterr().out
    assert run(root, ["group", "lag", "g", "--server", url]) == Exit.OK
    assert "t/1 is FAULTY" in capsys.readouterr().err
    assert run(root, ["delay", "list", "t", "--server", url]) == Exit.OK
    assert "t/1, which is FAULTY" in capsys.readouterr().err


def test_a_partition_of_another_version_is_faulty_and_the_broker_serves_the_rest(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        for number in range(2):
            broker.publish("t", b"x", partition=number)
    path = "topics/default/t.1/partition-1/state/checkpoint"
    files = {
        one: (tmp_path / one).read_bytes() for one in (path, path.replace("checkpoint", "identity"))
    }
    with_version(path, 3)(files)
    (tmp_path / path).write_bytes(files[path])
    with running_server(tmp_path) as address, Client(address) as client:
        assert [one.value for one in client.fetch("t", 0)] == [b"x"]
        with pytest.raises(PartitionFaulty) as refused:
            client.fetch("t", 1)
        assert refused.value.fields["path"] == path
        assert "is of version 3" in refused.value.fields["reason"]
        client.publish("t", b"y", partition=0)


def test_a_partition_that_becomes_faulty_while_its_topic_is_read_is_told_behind_the_others(
    tmp_path,
):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=3)
        for number in range(3):
            broker.publish("t", b"%d" % number, partition=number)
    with running_server(tmp_path) as url, Client(url) as client:
        reading = iter(client.read("t"))
        assert next(reading)[1].value == b"0"
        shutil.rmtree(tmp_path / "topics" / "default" / "t.1" / "partition-1" / "messages")
        with pytest.raises(PenstockError):
            client.publish("t", b"x", partition=1, acks="all")
        assert list(client.topic("t").faulty) == ["1"]
        assert next(reading)[1].value == b"2"
        with pytest.raises(PartitionFaulty) as told:
            next(reading)
        assert told.value.fields["partition"] == 1
