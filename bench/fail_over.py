"""How long clients wait when the leader is killed: from SIGKILL, with `promote` at once, to the first
acknowledged publish.

The standby goes on alone (`promote --alone`), so the killed node is no part of what is measured; it starts again, and
when it has everything it is the next that is promoted. So each fail-over has the same data.
"""

import asyncio
import statistics
import time
from functools import partial

from penstock.client import AsyncClient, Client, ClientSettings, RetryPolicy
from penstock.errors import PenstockError, Unconfirmed
from penstock.server.settings import BrokerSection, Settings
from penstock.server.standby.link import Operation
from penstock.server.standby.operator_requests import operate

from .floors import floors
from .measure import FULL, Effort
from .replication_nodes import Node, cluster_section, cluster_words, nodes, start_pair
from .report import CaseResult

TIMES, TIMES_QUICK = 11, 3
# So many a topic, and of a quick run in all.
PER_TOPIC, FEW = 50, 20
MESSAGES_QUICK = 200
_AT_ONCE = 200
_LOOK_S = 0.002
_GIVE_UP_S = 120
_ONCE = ClientSettings(retry=RetryPolicy(retries=0))


def make_topics(client: Client, partitions: int) -> list[tuple[str, int]]:
    """Makes topics with so many partitions in all. Returns these, as topic and number."""
    made: list[tuple[str, int]] = []
    while len(made) < partitions:
        topic, count = f"many-{len(made)}", min(PER_TOPIC, partitions - len(made))
        client.create_topic(topic, partitions=count)
        made += [(topic, number) for number in range(count)]
    return made


async def _publish(address: str, partitions: list[tuple[str, int]], count: int) -> None:
    """Publish so many messages one by one, in turn to each partition: each is a batch of its own in its log."""
    async with AsyncClient(address) as client:
        for first in range(0, count, _AT_ONCE):
            places = [
                partitions[number % len(partitions)]
                for number in range(first, min(first + _AT_ONCE, count))
            ]
            published = [
                client.publish(topic, b"x" * 100, partition=number, acks="all")
                for topic, number in places
            ]
            for reply in await asyncio.gather(*published, return_exceptions=True):
                # A standby on a busy machine may be late, and the message is there or not.
                if isinstance(reply, BaseException) and not isinstance(reply, Unconfirmed):
                    raise reply


def promote_alone(node: Node, other: Node) -> None:
    """Has a node lead, and acknowledge without the other until that one is back."""
    cluster = cluster_section(node, other, 2)
    settings = Settings(broker=BrokerSection(node_id=node.number), cluster=cluster)
    asked = Operation("promote", is_alone=True)
    asyncio.run(operate(settings, settings.cluster.listen, asked))


def fail_over_ms(leader: Node, other: Node, place: tuple[str, int]) -> float:
    """Kill the leader, promote the other at once, and publish until that is acknowledged."""
    topic, partition = place
    leader.kill()
    killed_s = time.perf_counter()
    promote_alone(other, leader)
    with other.client(_ONCE) as client:
        while time.perf_counter() - killed_s < _GIVE_UP_S:
            try:
                client.publish(topic, b"after", partition=partition, acks="all")
            except PenstockError:
                time.sleep(_LOOK_S)
                continue
            return (time.perf_counter() - killed_s) * 1000
    raise TimeoutError(f"node {other.number} acknowledges nothing")


def _is_together(leader: Node) -> bool:
    return not leader.get("/cluster")["is_alone"]


def _fail_overs_ms(
    leader: Node, other: Node, place: tuple[str, int], count: int
) -> tuple[list[float], Node, Node]:
    """So many fail-overs, back and forth, sorted; and who leads and follows then."""
    times = []
    for _ in range(count):
        times.append(fail_over_ms(leader, other, place))
        leader.start(*cluster_words(leader, other, 2))
        leader, other = other, leader
        leader.until_in_sync()
        leader.until(partial(_is_together, leader))
    return sorted(times), leader, other


def measure_fail_over(effort: Effort = FULL, *, partitions: int, messages: int = 0) -> CaseResult:
    """The median. With messages it is that of the same pair before and after them."""
    count = TIMES if effort is FULL else TIMES_QUICK
    if effort is not FULL:
        partitions, messages = min(partitions, FEW), min(messages, MESSAGES_QUICK)
    with nodes() as (first, second, _), floors(b"x") as floor:
        start_pair(first, second)
        with first.client() as client:
            places = make_topics(client, partitions)
        floor.take_turn()
        before, leader, other = _fail_overs_ms(first, second, places[0], count)
        times = before
        if messages:
            address = f"penstock://127.0.0.1:{leader.binary}"
            asyncio.run(_publish(address, places, messages))
            times, _, _ = _fail_overs_ms(leader, other, places[0], count)
        floor.take_turn()
    settings = {
        "times": count,
        "longest": times[-1],
        "partitions": partitions,
        "messages": messages,
        "floor_fsync": round(floor.times.fsync[0], 1),
    }
    baseline = statistics.median(before) if messages else None
    return CaseResult(statistics.median(times), baseline, settings=settings)
