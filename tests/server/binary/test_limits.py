"""What the binary port does not put up with: strangers, wrong keys, too much at once, clients that are slow or lie."""

import asyncio
import socket
import ssl
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trustme
from msgspec.structs import astuple

from penstock.api.consume import Poll
from penstock.api.delays import DescribeDelays
from penstock.api.fetch import Fetch, Read
from penstock.api.frames import COMMAND, HELLO, Hello, request_frame
from penstock.api.groups import ListGroups, ListRebalances
from penstock.api.health import SeeFigures, SeeReliability
from penstock.api.keys import CreateKey, ListKeys, RevokeKey, RotateKey
from penstock.api.members import JoinGroup
from penstock.api.principals import LOCAL, Role
from penstock.api.publish import Acks, PublishBatch, PublishValues
from penstock.api.queries import (
    ForgetQueryStart,
    KeepQueryStart,
    QueryStart,
    SeeQueryStart,
)
from penstock.api.schemas import (
    DescribeRegistry,
    DescribeSchema,
    Level,
    ListSubjects,
    NewSchema,
    RegisterSchema,
    SetCompatibility,
)
from penstock.api.start import Start
from penstock.api.topics import CreateTopic, DescribeTopic, ListTopics
from penstock.api.wire import decode_reply, encode_command, encode_hello
from penstock.errors import (
    Forbidden,
    NotFound,
    TooManyRequests,
    Unauthenticated,
)
from penstock.runtime import RealDisk
from penstock.server.audit_files import read_head, verify
from tests.stalls import despite_stalls

from .. import wires
from ..rigs import in_process, served
from ..test_reload import write_certificate
from .hostile import Hostile
from .raw_client import RawClient, connected
from .services import service_of
from .test_port import batch
from .transports import on_wire


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A broker with keys, and the text of its first one."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    with served(data, environment={"PENSTOCK_AUTH__ENABLED": "true"}) as broker:
        broker.key = (data / "admin.key").read_text().strip()
        with connected(broker.binary_port) as admin:
            admin.hello(broker.key)
            for name in ("mine-a", "other"):
                admin.call(CreateTopic(name, 1))
                admin.call(PublishValues(name, [b"v"]))
            yield broker, admin
        assert broker.stop() == 0
        with RealDisk.open_read_only(data) as disk:
            assert verify(disk) == []
            # Refusals too, which no client waits for.
            lines = (data / "audit.jsonl").read_bytes().count(b"\n")
            assert read_head(disk).lines == lines > 0


@pytest.fixture
def opened(guarded):
    """Makes a connection that has shown a key."""
    with ExitStack() as stack:

        def with_key(key):
            client = stack.enter_context(connected(guarded[0].binary_port))
            client.hello(key)
            return client

        yield with_key


@pytest.mark.tier("test")
def test_without_a_key_nothing_is_done(guarded):
    with connected(guarded[0].binary_port) as client:
        with pytest.raises(Unauthenticated):
            client.call(DescribeTopic("other"))
        assert client.is_closed()


@pytest.mark.parametrize("key", ["", "pk-000000000000.x", "é" * 1000, "\x00"])
def test_a_wrong_key_ends_the_connection(guarded, key):
    with connected(guarded[0].binary_port) as client:
        with pytest.raises(Unauthenticated):
            client.hello(key)
        assert client.is_closed()


def test_a_role_and_prefixes_hold_as_over_http(guarded, opened):
    broker, admin = guarded
    made = admin.call(CreateKey("mine", Role.ADMIN, ("mine-",)))
    reader = admin.call(CreateKey("reader", Role.READONLY))
    admin.call(JoinGroup("theirs", "m", ("other",)))
    mine = opened(made.text)
    assert mine.call(ListTopics()) == ["mine-a"]
    assert "theirs" in admin.call(SeeReliability())
    assert mine.call(ListGroups()) == mine.call(SeeReliability()) == {}
    labels = [one.labels for one in mine.call(SeeFigures(10))]
    assert {one["topic"] for one in labels if "topic" in one} == {"mine-a"}
    # How many members a group has is told without a topic.
    assert any(
        "group" in one.labels and "topic" not in one.labels for one in admin.call(SeeFigures(10))
    )
    assert not any("group" in one for one in labels)
    assert set(mine.call(DescribeDelays())) == {"mine-a"}
    assert [one.name for one in mine.call(ListKeys())] == ["mine"]
    schema = mine.call(RegisterSchema("mine-a-value", NewSchema("AVRO", '"int"'))).schema
    other = admin.call(RegisterSchema("other-value", NewSchema("AVRO", '"long"'))).schema
    assert mine.call(ListSubjects()) == ["mine-a-value"]
    assert mine.call(DescribeSchema(schema_id=schema.schema_id)).text == '"int"'
    with pytest.raises(NotFound):
        mine.call(DescribeSchema(schema_id=other.schema_id))
    totals = mine.call(DescribeRegistry())
    assert (totals.schemas, totals.subjects, totals.versions) == (1, 1, 1)
    assert mine.call(ListRebalances()) == {}
    with pytest.raises(Forbidden):
        mine.call(Read("other", 0))
    with pytest.raises(Forbidden):
        mine.call(CreateKey("more", Role.ADMIN))
    looking = opened(reader.text)
    assert looking.call(Read("other", 0)).messages
    with pytest.raises(Forbidden):
        looking.call(PublishValues("other", [b"v"]))
    # No client waits for the line of a refusal; the line of a change comes after it.
    admin.call(SetCompatibility("mine-a-value", Level.FULL))
    log = (broker.data / "audit.jsonl").read_text()
    assert f"key {made.key.key_id} (mine, admin) created" in log
    assert '"who":"reader","what":"publish","where":"other","client":"127.0.0.1"' in log
    assert made.text not in log


def test_what_is_kept_of_a_query_is_asked_for_by_prefix(guarded, opened):
    _, admin = guarded
    kept = QueryStart("daily", {"other/0": 3}, {"other": 1}, "latest")
    admin.call(KeepQueryStart(*astuple(kept)))
    mine = opened(admin.call(CreateKey("mine-consumer", Role.CONSUMER, ("mine-",))).text)
    for asked in ("latest", "earliest"):
        with pytest.raises(Forbidden):
            mine.call(KeepQueryStart("daily", {"mine-a/0": 9}, {"mine-a": 2}, asked))
    with pytest.raises(Forbidden):
        mine.call(KeepQueryStart("more", {"mine-a/0": 9}, {"other": 2}, "latest"))
    for command in (SeeQueryStart("daily"), ForgetQueryStart("daily")):
        with pytest.raises(Forbidden) as refused:
            mine.call(command)
        assert "other" not in str(refused.value)
    assert admin.call(SeeQueryStart("daily")) == kept
    assert admin.call(ForgetQueryStart("daily")) is None


def test_changes_of_the_registry_are_in_the_audit_log(guarded):
    broker, admin = guarded
    admin.call(SetCompatibility("noted", Level.FULL))
    admin.call(SetCompatibility("noted"))
    admin.call(RegisterSchema("noted", NewSchema("AVRO", '"int"')))
    log = (broker.data / "audit.jsonl").read_text()
    assert "noted: compatibility FULL" in log
    assert "noted: compatibility as usual" in log
    assert '"what":"register a schema"' in log
    assert "noted: version 1, id " in log


def test_what_waits_with_a_revoked_key_ends(guarded, opened):
    _, admin = guarded
    made = admin.call(CreateKey("short", Role.CONSUMER))
    client = opened(made.text)
    waiting = [
        client.begin(Poll("other", "g-revoked", "m", 0), wait_ms=60_000),
        client.begin(Fetch("other", 0, Start.at_offset(1)), wait_ms=60_000),
    ]
    client.value(waiting.pop(0))
    admin.call(RevokeKey(made.key.key_id))
    with pytest.raises(Unauthenticated):
        client.value(waiting.pop())
    assert client.is_closed()


def test_a_client_that_ends_its_own_key_is_answered_before_its_connection_ends(guarded, opened):
    broker, admin = guarded
    made = admin.call(CreateKey("own", Role.ADMIN))
    client = opened(made.text)
    second = client.call(RotateKey(made.key.key_id, 0))
    assert client.is_closed()
    again = opened(second.text)
    with pytest.raises(NotFound):
        again.call(RevokeKey("pk-00000000000b"))
    assert again.call(RevokeKey(made.key.key_id)) is None
    assert again.is_closed()
    with connected(broker.binary_port) as late, pytest.raises(Unauthenticated):
        late.hello(second.text)


async def test_a_client_that_ends_its_own_key_is_answered_for_other_keys_as_well(tmp_path):
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:
        own, other = broker.key("own", Role.ADMIN), broker.key("other", Role.ADMIN)
        service = service_of(broker)
        connection, wire = on_wire(service, own)
        executor = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(executor)
        changes = RevokeKey(other.key.key_id), RotateKey(own.key.key_id, 0)
        for number, command in enumerate(changes, 2):
            connection.data_received(
                b"".join(request_frame(COMMAND, number, encode_command(command)))
            )
        # Both are carried out before the loop hears of the first.
        executor.submit(int).result()
        async with asyncio.timeout(10):
            while not wire.is_over:  # noqa: ASYNC110 - told by no event
                await asyncio.sleep(0.001)
        assert list(wire.replies) == [2, 3]


def test_a_rotated_key_works_for_its_grace_and_not_without(guarded, opened):
    _, admin = guarded
    made = admin.call(CreateKey("turning", Role.CONSUMER))
    client = opened(made.text)
    second = admin.call(RotateKey(made.key.key_id, 60_000))
    assert client.call(Read("other", 0)).messages
    opened(second.text)
    third = admin.call(RotateKey(made.key.key_id, 0))
    assert client.is_closed()
    with connected(guarded[0].binary_port) as late, pytest.raises(Unauthenticated):
        late.hello(second.text)
    opened(third.text)


def test_tls_by_the_settings_of_http(tmp_path):
    authority = trustme.CA()
    tls = write_certificate(tmp_path, authority, "binary")
    environment = {"PENSTOCK_TLS__CERT_FILE": tls.cert_file, "PENSTOCK_TLS__KEY_FILE": tls.key_file}
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with served(tmp_path / "data", environment=environment) as broker:
        with connected(broker.binary_port, context=context) as client:
            assert client.hello().http.startswith("https://")
            client.call(CreateTopic("orders", 1))
            sent = batch(*[bytes(1 << 20)] * 5)
            client.call(PublishBatch("orders", 0, sent))
            found = client.call(Fetch("orders", 0, bytes_max=16 << 20, is_checked=False))
            assert len(found.data) == len(sent)
        with connected(broker.binary_port) as plain:
            plain.send(*request_frame(HELLO, 1, encode_hello(Hello("plain"))))
            assert plain.is_closed()
        assert broker.stop() == 0


def test_too_much_at_once_is_refused_and_not_begun(tmp_path):
    environment = {"PENSTOCK_BINARY__REQUESTS_MAX": "5"}
    with served(tmp_path / "data", environment=environment) as broker:
        with connected(broker.binary_port) as client:
            client.call(CreateTopic("orders", 1))
            frames = [
                client.frame(PublishValues("orders", [b"v"]), acks=Acks.ALL) for _ in range(200)
            ]
            client.send(*[frame for _, frame in frames])
            stored, refused = 0, []
            for number, _ in frames:
                try:
                    client.value(number)
                    stored += 1
                except TooManyRequests as error:
                    refused.append(error)
            assert stored + len(refused) == 200
            assert 0 < stored < 200
            assert refused[0].fields["retry_after_ms"] >= 1000
            assert len(client.call(Read("orders", 0)).messages) == stored
        assert broker.stop() == 0


def test_a_rate_holds_on_this_port_too(tmp_path):
    with served(tmp_path / "data", environment={"PENSTOCK_HTTP__REQUESTS_PER_S": "5"}) as broker:
        with connected(broker.binary_port) as client:
            for _ in range(5):
                client.call(ListTopics())
            with pytest.raises(TooManyRequests):
                client.call(ListTopics())
        broker.kill()


def test_connections_above_the_limit_are_closed(tmp_path):
    with served(tmp_path / "data", environment={"PENSTOCK_HTTP__CONNECTIONS_MAX": "2"}) as broker:
        clients = [RawClient(broker.binary_port) for _ in range(3)]
        for one in clients[:2]:
            one.hello()
        assert clients[2].is_closed()
        for one in clients:
            one.close()
        broker.kill()


@pytest.mark.tier("test")
def test_a_connection_that_says_nothing_is_closed(tmp_path):
    def story(idle_s):
        environment = {"PENSTOCK_BINARY__IDLE_MS": f"{idle_s * 1000}"}
        with served(tmp_path / f"data-{idle_s}", environment=environment) as broker:
            with connected(broker.binary_port) as waiting, connected(broker.binary_port) as idle:
                waiting.call(CreateTopic("orders", 1))
                polling = waiting.begin(Poll("orders", "g", "m", 1), wait_ms=idle_s * 2000)
                idle.hello()
                assert idle.is_closed()
                assert not waiting.value(polling).parts
            broker.kill()

    despite_stalls(story, (1, 10, 30))


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A broker that waits for slow clients a second or two."""
    environment = {
        "PENSTOCK_HTTP__BODY_TIMEOUT_MS": "2000",
        "PENSTOCK_HTTP__WRITE_TIMEOUT_MS": "1000",
    }
    with served(tmp_path_factory.mktemp("hasty") / "data", environment=environment) as broker:
        yield broker
        assert broker.stop() == 0


@pytest.mark.tier("test")
def test_a_frame_that_comes_too_slowly_ends_its_connection(hasty):
    with connected(hasty.binary_port) as client:
        _, frame = client.frame(ListTopics())
        client.send(frame[:-1])
        assert client.is_closed()


def sockets_of(pid):
    found = 0
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += "socket" in str(one.readlink())
    return found


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_client_that_does_not_read_is_cut_off(hasty, is_checked):
    """Whether its replies come from memory or from files."""
    pid, topic = hasty.process.pid, f"unread-{is_checked}"
    with connected(hasty.binary_port) as client:
        client.call(CreateTopic(topic, 1))
        for _ in range(8):
            client.call(PublishBatch(topic, 0, batch(bytes(1 << 20))))
        before = sockets_of(pid)
        with connected(hasty.binary_port) as slow:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.hello()
            assert sockets_of(pid) > before
            for _ in range(20):
                slow.begin(Fetch(topic, 0, bytes_max=16 << 20, is_checked=is_checked))
            until(lambda: sockets_of(pid) <= before)
        assert client.call(DescribeTopic(topic)).name == topic


def until(is_so):
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def mangled(random, frame):
    """A frame with something wrong in it."""
    data = bytearray(frame)
    match random.randrange(7):
        case 0:
            return bytes(data[: random.randrange(len(data))]), True
        case 1:
            data[:4] = struct.pack(">i", random.choice((-1, 0, 7, 1 << 30, (1 << 31) - 1)))
            return bytes(data), True
        case 2:
            data[4:8] = struct.pack(">hh", random.choice((10_000, 10_003, 32_767)), 0)
        case 3:
            data[6:8] = struct.pack(">h", random.choice((-1, 1, 99)))
        case 4:
            data[12:14] = struct.pack(">h", random.choice((-2, 30_000, 5)))
        case 5:
            data[14:18] = struct.pack(">I", random.getrandbits(32))
        case _:
            for _ in range(random.choice((1, 3, 10))):
                data[random.randrange(14, len(data))] = random.randrange(256)
    return bytes(data), False


# Correlations of hostile frames begin here, beyond those of the hello that follows them.
_HOSTILE = 1 << 20
DANGEROUS = frozenset({b"DeleteTopic", b"CreateTopic", b"AddPartitions", b"CreateKey"})


@pytest.mark.tier("test")
def test_hostile_frames_get_an_error_or_the_end_of_their_connection(tmp_path, effort, tier):
    """Whatever comes: the broker answers others, stays small, and stores nothing that was not whole."""
    count = effort(check=1000, test=25_000, torture=2_000_000)
    hostile = Hostile(len(tier), DANGEROUS)
    random = hostile.random
    with served(tmp_path / "data", "--log-level", "error") as broker:
        with connected(broker.binary_port) as good:
            good.call(CreateTopic("orders", 2))
            good.call(CreateTopic("watched", 1))
            before = resident_bytes(broker.process.pid)
        client, sent = RawClient(broker.binary_port), 0
        while sent < count:
            frames, is_end = [], False
            while len(frames) < 50 and not is_end:
                whole = b"".join(request_frame(10_001, _HOSTILE + len(frames), [hostile.body()]))
                is_mangled = random.random() < 0.7
                frame, is_end = mangled(random, whole) if is_mangled else (whole, False)
                frames.append(frame)
            sent += len(frames)
            try:
                client.send(*frames)
                if not is_end:
                    client.hello()
            except OSError:
                is_end = True
            client.replies.clear()
            if is_end:
                client.close()
                client = RawClient(broker.binary_port)
        client.close()
        # A long run takes longer than a connection may be idle.
        with connected(broker.binary_port) as good:
            assert good.call(Read("watched", 0)).messages == []
            assert good.call(DescribeTopic("orders")).name == "orders"
            assert resident_bytes(broker.process.pid) < before + (400 << 20)
        assert broker.stop() == 0
        assert "Traceback" not in "".join(broker.lines)


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("kind", [Fetch, Read])
async def test_a_read_that_waits_meets_the_budget_of_answers_when_it_is_woken(tmp_path, kind):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection, wire = on_wire(service_of(broker))
        connection.principal = LOCAL
        for number in (1, 2):
            asked = encode_command(kind("orders", 0), wait_ms=60_000)
            connection.data_received(b"".join(request_frame(COMMAND, number, asked, b"test")))
        assert not wire.replies
        broker.app.send_budget.bytes_max = 0
        await broker.publish("v")
        await wires.until(lambda: len(wire.replies) == 2)
        for reply in wire.replies.values():
            with pytest.raises(TooManyRequests):
                decode_reply(kind, reply)
        connection.connection_lost(None)
