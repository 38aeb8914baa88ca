"""What an answer says is on the disk is on the disk when it leaves, whichever entrance the request came by.

A sync takes a moment here, so an answer that does not wait for it is always first. When an answer leaves, the power is
cut: a node that starts on what is durable has to come to what a node comes to that starts on everything written. Each
request is sent twice at once: the answer to a repeat may rest on nothing that the first has not made durable.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.api import keys, publish, queries, schemas, topics
from penstock.api.command import Command
from penstock.api.frames import COMMAND, request_frame
from penstock.api.principals import LOCAL
from penstock.api.publish import Acks, Guarantee, Safety
from penstock.api.wire import decode_reply, encode_command
from penstock.errors import PenstockError
from penstock.model import Message
from penstock.server.binary.commands import Commands
from penstock.server.binary.connection import Connection
from penstock.server.http.connection import Connection as HttpConnection
from penstock.server.http.table import ROUTES
from penstock.server.kafka.port import HANDLERS
from penstock.server.kafka.schema import REQUESTS
from tests.kafka.in_process import KafkaRig
from tests.server.binary.services import service_of
from tests.server.binary.transports import Wire
from tests.server.rigs import InProcess, reply_of
from tests.server.wires import Wire as HttpWire
from tests.server.wires import is_answered, until

from .commands import CHANGING, EXAMPLES, Kinds
from .disks import Judge, PeerCommits, SlowDisk
from .requests import KAFKA_EXAMPLES, ROUTE_EXAMPLES, VOLATILE_APIS, VOLATILE_ROUTES, Sent
from .scene import MEMBER, Scene

PATIENCE_S = 10
# Routes whose answers wait for the disk whatever the fsync policy says.
FIRM_ROUTES = re.compile(
    r"(?!DELETE /commits)\w+ /(topics$|topics/\{topic\}$|admin/keys|admin/topics/\{topic\}/partitions|subjects"
    r"|config|mode|queries|transactions/(?!begin|add-partition)|stagings/\{staging\}/|commits/\{commit\}$)"
)
SAFETY = re.compile(rb'"guarantee":"(\w+)"(?:[^{}]*"copies":(\d))?')
ERROR_CODE = re.compile(r"error_code': [^0]")
Ask = Callable[["Rig", Command[Any], Acks], Awaitable["Answered"]]


class Promise(NamedTuple):
    """Of a broker: when its answers wait."""

    fsync: str
    has_peer: bool = False

    def __str__(self) -> str:
        return f"{self.fsync}-peer" if self.has_peer else self.fsync

    @property
    def safety(self) -> Safety:
        """Of what has waited."""
        return Safety(Guarantee.REPLICATED, 2) if self.has_peer else Safety(Guarantee.FSYNCED)

    @property
    def is_always(self) -> bool:
        return self.fsync == "always"


class Answered(NamedTuple):
    """An answer, where the disk and the peer were when it left, and what it says of its safety."""

    at: int
    committed: int
    value: Any
    safety: Safety | None = None


class Rig:
    """A broker on a disk that is slow, and what is asked of it."""

    def __init__(self, promise: Promise, data: Path) -> None:
        self.promise, self.disk = promise, SlowDisk()
        self.peer = PeerCommits(self.disk) if promise.has_peer else None
        gate = None if self.peer is None else self.peer.gate
        self.broker = InProcess(data, {}, promise.fsync, self.disk, gate)
        if self.peer is not None:
            self.peer.driver = self.broker.driver
        self.scene, self.judge = Scene(self.broker.driver), Judge(self.disk)
        self.service = service_of(self.broker)

    def answered(self, value: Any, safety: Safety | None = None) -> Answered:
        at = self.disk.answer()
        return Answered(at, 0 if self.peer is None else self.peer.committed, value, safety)

    async def begin(self) -> int:
        """What was made for the request is durable; how many operations that took."""
        await self.broker.app.driver.settle()
        self.disk.ask()
        return len(self.disk.operations)

    def do_without_waiting(self, command: Command[Any]) -> None:
        """Another client was before, and left."""
        if command.is_walk:
            self.broker.driver.execute(command)
        else:
            self.broker.driver.start(command)

    def require(self, began: int, answer: Answered, *, is_waiting: bool) -> None:
        """What an answer has waited for is safe; if it says so of itself it has waited, with as many copies."""
        safety = answer.safety
        if safety is not None and safety.guarantee is not Guarantee.BUFFERED:
            is_waiting = True
            assert safety == self.promise.safety
        if not is_waiting:
            return
        lost = self.judge.lost(answer.at)
        assert not lost, f"answered, and lost in a power cut: {lost}"
        if self.peer is not None:
            missing = self.judge.missing(began, answer.committed, answer.at)
            assert not missing, f"answered, and missed by the peer: {missing}"


PROMISES = [
    Promise("always"),
    Promise("never"),
    pytest.param(Promise("interval"), marks=pytest.mark.tier("test")),
    pytest.param(Promise("always", has_peer=True), marks=pytest.mark.tier("test")),
]


@asynccontextmanager
async def rig_of(promise: Promise, data: Path) -> AsyncIterator[Rig]:
    rig = Rig(promise, data)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield rig
    finally:
        rig.disk.is_slow = False
        rig.broker.close()


async def by_binary(rig: Rig, command: Command[Any], acks: Acks) -> Answered:
    """The answer of the binary port."""
    answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()

    class JudgedWire(Wire):
        def write(self, data: Any) -> None:
            super().write(data)
            if self.replies:
                answered.set_result(rig.answered(self.replies.popitem()[1]))

    connection = Connection(rig.service, Commands(rig.service))
    connection.connection_made(JudgedWire())
    connection.principal = LOCAL
    frame = request_frame(COMMAND, 1, encode_command(command, acks, 0), b"test")
    connection.data_received(b"".join(frame))
    answer = await answered
    connection.connection_lost(None)
    return decoded(type(command), answer)


def decoded(kind: Kinds, answer: Answered) -> Answered:
    try:
        reply = decode_reply(kind, answer.value)
    except PenstockError as error:
        return answer._replace(value=error)
    return answer._replace(value=reply.value, safety=reply.safety)


async def by_program(rig: Rig, command: Command[Any], _acks: Acks) -> Answered:
    """The answer to a program that has the broker inside."""

    def ask() -> Answered:
        try:
            reply = rig.broker.driver.execute(command)
        except PenstockError as error:
            return rig.answered(error)
        return rig.answered(reply)

    return await asyncio.to_thread(ask)


OF_META = {module.__name__ for module in (keys, queries, schemas, topics)}


def is_firm(kind: Kinds) -> bool:
    """Whether its answer waits for the disk whatever the policy says, and whoever asks."""
    is_of_meta = kind.__module__ in OF_META and kind is not topics.TrimPartition
    return kind.takes_steps or is_of_meta


# What a lease or a group's member is lost with comes again, so a poll waits for the peer alone.
LEASES = frozenset({"Poll", "PollMember"})


def test_every_command_that_changes_something_has_an_example() -> None:
    assert set(EXAMPLES) == set(CHANGING), "each needs an entry in tests/entrances/commands.py"


def asks(kind: Kinds, promise: Promise, tier: str) -> Iterator[tuple[Ask, Acks]]:
    """How a command is asked for: by all ways, but in the short tier by those that wait for a reason of their own."""
    yield by_program, Acks.LEADER
    for acks in Acks:
        is_least = acks is (Acks.LEADER if promise.is_always else Acks.ALL)
        if is_least or tier != "check" or (kind.is_durable and acks is Acks.NONE):
            yield by_binary, acks


def is_waiting(kind: Kinds, promise: Promise, ask: Ask, acks: Acks) -> bool:
    """Whether an answer has to wait for the disk."""
    if is_firm(kind) or (kind.is_durable and ask is by_binary):
        return True
    if kind.__name__ in LEASES:
        return False
    return acks is Acks.ALL or (promise.is_always and acks is not Acks.NONE)


@pytest.mark.parametrize("kind", CHANGING, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_what_a_command_was_answered_is_on_the_disk(
    kind: Kinds, promise: Promise, tier: str, tmp_path: Path
) -> None:
    async def run() -> None:
        async with rig_of(promise, tmp_path) as rig:
            for ask, acks in asks(kind, promise, tier):
                for is_repeat in (False, True):
                    command = EXAMPLES[kind](rig.scene)
                    began = await rig.begin()
                    if is_repeat:
                        rig.do_without_waiting(command)
                    answer = await ask(rig, command, acks)
                    rig.disk.is_slow = False
                    waits = is_waiting(kind, promise, ask, acks)
                    if isinstance(answer.value, PenstockError):
                        assert is_repeat, answer.value
                        continue
                    rig.require(began, answer, is_waiting=waits)
                    if waits and issubclass(kind, publish.StoreMessages) and answer.safety:
                        assert answer.safety == promise.safety

    asyncio.run(run())


async def by_http(rig: Rig, method: str, sent: Sent) -> Answered:
    """The answer of HTTP. The rig returns when the answer has been written, in the same turn of the loop."""
    connection, wire = HttpConnection(rig.broker.app), JudgedHttpWire(rig)
    body = sent.body if isinstance(sent.body, bytes) else json.dumps(sent.body).encode()
    if sent.body is None:
        body = b""
    lines = [f"{method} {sent.target} HTTP/1.1", "host: localhost", f"content-type: {sent.kind}"]
    lines += [f"content-length: {len(body)}", "", ""]
    connection.connection_made(wire)
    connection.data_received("\r\n".join(lines).encode() + body)
    answer = await wire.answered
    await until(lambda: is_answered(connection))
    connection.connection_lost(None)
    return answer._replace(value=reply_of(wire.written))


class JudgedHttpWire(HttpWire):
    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self._rig = rig
        self.answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        super().write(data)
        if not self.answered.done():
            self.answered.set_result(self._rig.answered(None))


def test_every_route_that_changes_something_has_an_example() -> None:
    routes = {f"{route.method} {route.path}" for route in ROUTES if route.method != "GET"}
    assert set(ROUTE_EXAMPLES) | VOLATILE_ROUTES == routes, "tests/entrances/requests.py"


@pytest.mark.parametrize("route", ROUTE_EXAMPLES)
@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_what_a_route_answered_is_on_the_disk(route: str, promise: Promise, tmp_path: Path) -> None:
    async def run() -> None:
        async with rig_of(promise, tmp_path) as rig:
            for example in ROUTE_EXAMPLES[route]:
                for acks in ("leader", "all"):
                    sent = example(rig.scene)
                    target = sent.target.replace("ACKS", acks)
                    began = await rig.begin()
                    answer = await by_http(
                        rig, route.split(maxsplit=1)[0], sent._replace(target=target)
                    )
                    rig.disk.is_slow = False
                    assert answer.value.status < 300, answer.value
                    is_all = acks == "all" and sent.target != target
                    is_waiting = promise.is_always or is_all or FIRM_ROUTES.match(route)
                    rig.require(began, answer, is_waiting=bool(is_waiting))
                    said = [
                        Safety(Guarantee(guarantee.decode()), int(copies or 0))
                        for guarantee, copies in SAFETY.findall(answer.value.body)
                    ]
                    wanted = promise.safety if is_waiting else Safety(Guarantee.BUFFERED)
                    assert set(said) <= {wanted}, answer.value.body
                    if sent.target == target:
                        break

    asyncio.run(run())


@pytest.mark.parametrize("place", range(3))
def test_of_publishes_in_one_turn_each_waits_for_what_it_asks(place: int, tmp_path: Path) -> None:
    async def run() -> None:
        async with rig_of(Promise("never"), tmp_path) as rig:
            asked = [("leader", b"buffered")] * 2
            asked.insert(place, ("all", b"fsynced"))
            body = {"messages": [{"value": "a"}]}
            targets = [f"/topics/{rig.scene.topic()}/messages?acks={acks}" for acks, _ in asked]
            began = await rig.begin()
            publishes = [by_http(rig, "POST", Sent(target, body)) for target in targets]
            answers = await asyncio.gather(*publishes)
            rig.disk.is_slow = False
            assert [SAFETY.findall(one.value.body)[0][0] for one in answers] == [
                guarantee for _, guarantee in asked
            ]
            rig.require(began, answers[place], is_waiting=True)

    asyncio.run(run())


@pytest.mark.parametrize("is_member", [False, True])
def test_what_http_lends_is_lent_for_the_peer_too(is_member: bool, tmp_path: Path) -> None:
    async def run() -> None:
        async with rig_of(Promise("always", has_peer=True), tmp_path) as rig:
            group, topic = rig.scene.joined()
            rig.scene.run(publish.Publish(topic, [Message(b"new")], 1))
            target = f"/groups/{group}/poll?member_id={MEMBER}"
            if not is_member:
                target = f"/topics/{topic}/messages?group=shared"
            began = await rig.begin()
            answer = await by_http(rig, "GET", Sent(target))
            rig.disk.is_slow = False
            assert json.loads(answer.value.body)["messages"]
            rig.require(began, answer, is_waiting=True)

    asyncio.run(run())


def test_every_api_key_that_changes_something_has_an_example() -> None:
    names = {REQUESTS[key].name for key in HANDLERS}
    assert names == {name.split()[0] for name in KAFKA_EXAMPLES} | VOLATILE_APIS


@pytest.mark.parametrize("name", KAFKA_EXAMPLES)
@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_what_a_kafka_client_was_answered_is_on_the_disk(
    name: str, promise: Promise, tmp_path: Path
) -> None:
    async def run() -> None:
        async with rig_of(promise, tmp_path) as rig:
            asked = KAFKA_EXAMPLES[name](rig.scene)
            client = KafkaRig(rig.broker).client()
            began = await rig.begin()
            reply = await client.ask(asked.key, asked.version, **asked.values)
            answer = rig.answered(reply)
            rig.disk.is_slow = False
            assert not ERROR_CODE.findall(repr(reply)), reply
            rig.require(began, answer, is_waiting=promise.is_always or asked.is_firm)

    asyncio.run(run())
