"""The judge of dearest requests: it leaves none out, sees what is wrong, and of the broker all but stalls holds."""

import gc
import math
from collections import defaultdict

import pytest

from dear.binary import binary_requests
from dear.bombs import bombs
from dear.http import http_requests
from dear.kafka import kafka_requests
from dear.names import Names, Sizes, layout
from dear.server import count_commands
from one_request import PORTS, Bounds, Verdict, judging, wanted
from penstock.api.bounds import NAMES_MAX
from penstock.api.frames import read_header
from penstock.api.groups import DescribeGroup
from penstock.api.topics import DescribeTopics
from penstock.api.transactions import ProducerSession
from penstock.api.wire import CALLS, decode_command
from penstock.errors import TooLarge
from penstock.server.http.table import ROUTES
from penstock.server.kafka.port import HANDLERS
from penstock.server.kafka.schema import REQUESTS

SMALL = Sizes(partitions=24, groups=10, messages=2000, items=2000)
UNTIMED = Bounds(stall_ms=math.inf, patience_s=240.0)


def names_of(sizes: Sizes) -> Names:
    """As if a broker had been filled."""
    topics = layout(sizes)
    groups = tuple(f"group-{number}" for number in range(sizes.groups))
    ids = tuple(range(1, len(topics) + 1))
    session = ProducerSession(1, 0)
    return Names(sizes, tuple(topics), ids, tuple(topics.values()), groups, {}, session)


def command_of(frame: bytes):
    return decode_command(read_header(memoryview(frame)[4:])[1]).command


def test_no_way_in_is_left_out():
    names = names_of(SMALL)
    asked = {request.name.partition(":")[0] for request in binary_requests(names)}
    assert asked == {name.decode() for name in CALLS}
    asked = {" ".join(request.name.split()[:2]) for request in http_requests(names)}
    assert {name.rstrip(":") for name in asked} == {
        f"{route.method} {route.path}" for route in ROUTES
    }
    assert {request.api for request in kafka_requests(names)} == {
        (key, version)
        for key in HANDLERS
        for version in range(REQUESTS[key].first, REQUESTS[key].last + 1)
    }


def test_commands_are_as_long_as_their_bounds_and_beyond():
    names = names_of(SMALL._replace(items=2 * NAMES_MAX))
    made = {
        request.name: request.make
        for request in binary_requests(names)
        if request.name.startswith("DescribeTopics:")
    }
    existing = command_of(made["DescribeTopics: lists of names that exist"]())
    assert isinstance(existing, DescribeTopics)
    assert len(existing.names) == NAMES_MAX
    assert {*existing.names} == {*names.topics}
    absent = command_of(made["DescribeTopics: lists of names that do not exist"]())
    assert len({*absent.names}) == NAMES_MAX
    with pytest.raises(TooLarge):
        command_of(made["DescribeTopics: more than the bounds allow"]())


def test_what_types_do_not_tell_of_is_asked_by_other_roles():
    roles = {request.name: request.role for request in bombs(names_of(SMALL))}
    assert "readonly" in roles.values()
    assert any(name.startswith("CheckCompatibility") for name in roles)


@pytest.mark.parametrize(
    ("verdict", "wrong"),
    [
        (Verdict("r", "binary", "f", publish_ms=150.0, floor_ms=60.0), []),
        (Verdict("r", "binary", "f", publish_ms=150.0, floor_ms=5.0), ["stalls others for 150 ms"]),
        (Verdict("r", "binary", "f", livez_ms=150.0), ["stalls others for 150 ms"]),
        (Verdict("r", "binary", "f", grown_bytes=80 << 20), ["memory grows by 80 MiB"]),
        (Verdict("r", "binary", "f", held={"Publish": 2}), ["keeps Publish"]),
        (Verdict("r", "binary", "f", outcome="silent"), ["no answer in 60 s"]),
    ],
)
def test_a_verdict_names_what_is_wrong(verdict, wrong):
    verdict.judge(Bounds())
    assert verdict.wrong == wrong


def test_a_command_that_is_kept_is_counted():
    before = count_commands().get("DescribeGroup", 0)
    # Of plain fields: the garbage collector does not know it, only the list that has it.
    kept = [DescribeGroup("billing")]
    assert count_commands()["DescribeGroup"] == before + 1
    kept.clear()
    assert count_commands().get("DescribeGroup", 0) == before
    # What is only kept by itself is kept until the collector comes.
    gc.disable()
    try:
        cycle = [DescribeGroup("billing")]
        cycle.append(cycle)
        del cycle
        assert count_commands()["DescribeGroup"] == before + 1
    finally:
        gc.enable()


def first_and_last(requests):
    """Of each command, route or api key the first form, and the last one, which is mostly beyond the bounds."""
    by_name = defaultdict(list)
    for request in requests:
        end = " " if request.port == "kafka" else ":"
        by_name[request.name.partition(end)[0]].append(request)
    return [request for same in by_name.values() for request in dict.fromkeys((same[0], same[-1]))]


@pytest.mark.tier("test")
@pytest.mark.parametrize("port", PORTS)
def test_every_request_has_an_answer_and_leaves_nothing(port, tier):
    sizes = SMALL if tier == "test" else Sizes()
    with judging(sizes, UNTIMED) as judge:
        requests = wanted(judge.names, [port], (), ())
        if tier == "test":
            requests = first_and_last(requests)
        verdicts = [judge.judged(request) for request in requests]
        wrong = [verdict for verdict in verdicts if verdict.wrong]
        assert not wrong, judge.broker.log.read_text()[-3000:]
