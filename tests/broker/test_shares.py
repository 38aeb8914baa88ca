"""What one key may fill: a full share refuses that key, and nothing of another key goes, whatever a restart does."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from penstock.api.classic import CommitOffsets, CommittedOffset
from penstock.api.command import Command
from penstock.api.commits import ListCommitNames, OpenStaging, ResetCommitName
from penstock.api.groups import CloseGroup, ListGroups, OpenGroup
from penstock.api.keys import CreateKey, RevokeKey
from penstock.api.principals import LOCAL, Principal, Role
from penstock.api.queries import ForgetQueryStart, KeepQueryStart, SeeQueryStart
from penstock.api.transactions import InitProducer, ListTransactions
from penstock.config import LimitsConfig
from penstock.errors import (
    AlreadyExists,
    Damaged,
    Forbidden,
    NotFound,
    Refused,
    ShareFull,
    TooManyGroups,
)

from .world import HOUR_MS, World

ANN, BEN = (Principal(name, Role.ADMIN, ("a",), f"pk-{name}") for name in ("ann", "ben"))
KEYS = {"": LOCAL, "ann": ANN, "ben": BEN}
PER_KEY, IN_ALL = 2, 5
TOPICS = ("a", "ab")
KINDS = STARTS, PRODUCERS, NAMES = "query starts", "producers with transactions", "names of commits"
LIMITS = LimitsConfig(
    query_starts_max=IN_ALL,
    query_starts_per_key_max=PER_KEY,
    producers_max=IN_ALL,
    producers_per_key_max=PER_KEY,
    commit_names_max=IN_ALL,
    commit_names_per_key_max=PER_KEY,
    groups_max=IN_ALL,
    groups_per_key_max=PER_KEY,
)
WEEK_MS = 7 * 24 * HOUR_MS


def start_of(name: str, offset: int = 1) -> KeepQueryStart:
    return KeepQueryStart(name, {"a/0": offset}, {"a": 1}, f"from {offset}")


FILL: dict[str, Callable[[str], Command[Any]]] = {
    STARTS: start_of,
    PRODUCERS: InitProducer,
    NAMES: lambda name: OpenStaging(name, 0, "w"),
}


def execute(world: World, by: Principal, command: Command[Any]) -> Any:
    return world.node.execute(command, by, world.now()).outcome()


class Filling(RuleBasedStateMachine):
    """Two keys, and a client without one, fill and free; the model is a dictionary from kind and name to owner."""

    @initialize()
    def begin(self) -> None:
        self.world = World(limits=LIMITS)
        for topic in TOPICS:
            self.world.topic(2, topic)
        # By topic and name.
        self.groups: dict[tuple[str, str], str] = {}
        self.owners: dict[tuple[str, str], str] = {}
        # What queries ask for changes from time to time, and then another start takes the place of the kept one.
        self.offset, self.asked = 1, dict[str, int]()

    def expected(self, kind: str, name: str, key: str, *, is_changed: bool) -> type[Refused] | None:
        """What the model says, and does."""
        known = self.owners.get((kind, name))
        if kind != STARTS and key and known not in (None, "", key):
            return Forbidden
        takes_over = is_changed if kind == STARTS else kind == PRODUCERS and not known and key
        if known is not None and not takes_over:
            return None
        owners = [
            owner for (of, at), owner in self.owners.items() if (of, at != name) == (kind, True)
        ]
        if (key and owners.count(key) >= PER_KEY) or len(owners) >= IN_ALL:
            return ShareFull
        self.owners[kind, name] = key
        return None

    @rule(
        kind=st.sampled_from(KINDS),
        name=st.sampled_from("pqrstuv"),
        key=st.sampled_from([*KEYS]),
        is_changed=st.booleans(),
    )
    def fill(self, kind: str, name: str, key: str, is_changed: bool) -> None:
        self.offset += is_changed
        expected = self.expected(kind, name, key, is_changed=self.asked.get(name) != self.offset)
        command = start_of(name, self.offset) if kind == STARTS else FILL[kind](name)
        if expected is None:
            execute(self.world, KEYS[key], command)
            if kind == STARTS:
                self.asked[name] = self.offset
            return
        with pytest.raises(expected) as refused:
            execute(self.world, KEYS[key], command)
        if expected is ShareFull:
            assert refused.value.fields["kind"] == kind
            assert refused.value.fields["used"] >= refused.value.fields["limit"]

    @rule(
        group=st.sampled_from("pqr"),
        topic=st.sampled_from(TOPICS),
        key=st.sampled_from([*KEYS]),
        is_commit=st.booleans(),
    )
    def make_group(self, group: str, topic: str, key: str, is_commit: bool) -> None:
        """On all partitions, or by a commit of Kafka on one of them."""
        expected, place = None, (topic, group)
        if place not in self.groups:
            owners = [*self.groups.values()]
            if key and owners.count(key) >= PER_KEY:
                expected = ShareFull
            elif len(owners) >= IN_ALL:
                expected = TooManyGroups
        command: Command[Any] = OpenGroup(group, (topic,))
        if is_commit:
            command = CommitOffsets(group, (CommittedOffset(topic, 1, 0, ""),))
        if expected is not None:
            with pytest.raises(expected):
                execute(self.world, KEYS[key], command)
            return
        execute(self.world, KEYS[key], command)
        self.groups.setdefault(place, key)

    @rule(group=st.sampled_from("pqr"))
    def close_group(self, group: str) -> None:
        if any(name == group for _, name in self.groups):
            execute(self.world, LOCAL, CloseGroup(group))
            self.groups = {place: key for place, key in self.groups.items() if place[1] != group}

    @rule(topic=st.sampled_from(TOPICS))
    def make_topic_anew(self, topic: str) -> None:
        self.world.delete(topic)
        self.world.topic(2, topic)
        self.groups = {place: key for place, key in self.groups.items() if place[0] != topic}

    @rule(name=st.sampled_from("pqrstuv"), key=st.sampled_from([*KEYS]))
    def forget_start(self, name: str, key: str) -> None:
        if self.owners.pop((STARTS, name), None) is None:
            with pytest.raises(NotFound):
                execute(self.world, KEYS[key], ForgetQueryStart(name))
        else:
            execute(self.world, KEYS[key], ForgetQueryStart(name))

    @rule(name=st.sampled_from("pqrstuv"))
    def reset_name(self, name: str) -> None:
        if self.owners.pop((NAMES, name), None) is not None:
            execute(self.world, LOCAL, ResetCommitName(name))

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.world.restart()
        else:
            self.world.kill()

    @invariant()
    def nothing_is_lost(self) -> None:
        names = {kind: {name for of, name in self.owners if of == kind} for kind in KINDS}
        found = execute(self.world, LOCAL, ListTransactions(limit=100))
        assert {producer.name for producer in found} == names[PRODUCERS]
        listed = execute(self.world, LOCAL, ListCommitNames(limit=100))
        shown = {name.name: name.owner for name in listed}
        assert shown == {
            name: f"pk-{self.owners[NAMES, name]}"
            if self.owners["names of commits", name]
            else "local"
            for name in names[NAMES]
        }
        known: dict[str, list[str]] = {}
        for topic, name in sorted(self.groups):
            known.setdefault(name, []).append(topic)
        assert execute(self.world, LOCAL, ListGroups()) == known
        for name in names[STARTS]:
            assert execute(self.world, LOCAL, SeeQueryStart(name)).query == name


def test_shares_are_those_of_a_naive_model(effort: Callable[..., int]) -> None:
    examples, steps = (
        effort(check=40, test=400, torture=5000),
        effort(check=30, test=50, torture=80),
    )
    run_state_machine_as_test(
        Filling, settings=settings(max_examples=examples, stateful_step_count=steps)
    )


def test_a_share_in_bytes_counts_what_a_client_decides() -> None:
    world = World(limits=LimitsConfig(query_start_bytes_per_key_max=1000))
    world.topic(1, "a")
    long = {f"a/{number}": 0 for number in range(100)}
    with pytest.raises(ShareFull) as refused:
        execute(world, ANN, KeepQueryStart("q", long, {}, "latest"))
    assert refused.value.fields["kind"] == "bytes of query starts"
    for offset in range(1, 20):  # In place of the one before.
        execute(world, ANN, start_of("q", offset))


def test_an_idle_producer_gives_its_place_back() -> None:
    world = World(limits=LIMITS)
    for name in "pq":
        execute(world, ANN, InitProducer(name))
    with pytest.raises(ShareFull):
        execute(world, ANN, InitProducer("r"))
    world.wait(WEEK_MS + 2 * HOUR_MS)
    execute(world, ANN, InitProducer("r"))


@pytest.mark.parametrize(
    "command", [start_of("q"), InitProducer("q"), OpenStaging("q", 0, "w"), OpenGroup("q", ("a",))]
)
def test_the_id_of_a_revoked_key_does_not_come_again_while_something_is_its(command) -> None:
    world = World()
    world.topic(1, "a")
    ann = world.execute(CreateKey("ann", Role.ADMIN, ("a",), key_id="pk-0123456789ab")).key
    execute(world, Principal(ann.name, ann.role, ann.prefixes, ann.key_id), command)
    world.execute(RevokeKey(ann.key_id))
    for restart in (world.restart, world.kill, lambda: None):
        restart()
        with pytest.raises(AlreadyExists):
            world.execute(CreateKey("ben", Role.ADMIN, ("a",), key_id=ann.key_id))
    world.execute(CreateKey("ann", Role.ADMIN, ("a",)))


def test_a_share_of_groups_is_given_back_by_idle_ones_and_by_a_faulty_partition() -> None:
    world = World(limits=LIMITS)
    world.topic(2, "a", group_retention_hours=1)
    for name in "pq":
        execute(world, ANN, OpenGroup(name, ("a",)))
    with pytest.raises(ShareFull):
        execute(world, ANN, OpenGroup("r", ("a",)))
    world.wait(2 * HOUR_MS)
    world.sweep()
    assert execute(world, LOCAL, ListGroups()) == {}
    for name in "rs":
        execute(world, ANN, OpenGroup(name, ("a",)))
    # One of two partitions says no more of them, and the other one does.
    world.node.fail(world.node.partition("a", 0), Damaged("gone"))
    with pytest.raises(ShareFull):
        execute(world, ANN, OpenGroup("t", ("a",)))
    world.node.fail(world.node.partition("a", 1), Damaged("gone"))
    world.topic(1, "ab")
    execute(world, ANN, OpenGroup("t", ("ab",)))
