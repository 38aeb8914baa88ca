"""Assignors against what they promise, and sticky against every other assignment there is, for small groups."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from penstock.api.members import Assignor
from penstock.groups.assignors import CurrentOwners, assign, sticky
from penstock.model import TopicPartition

TOPICS = ("ants", "bees", "cats")
MEMBERS = ("ann", "bob", "eve", "joe", "kim")

members = st.lists(st.sampled_from(MEMBERS), unique=True, min_size=1)
same_topics = members.map(lambda names: dict.fromkeys(names, frozenset(TOPICS)))
any_topics = st.dictionaries(
    st.sampled_from(MEMBERS), st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1
)
partitions = st.lists(
    st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 3)), unique=True
)


def some_owners(ones):
    return st.fixed_dictionaries({}, optional=dict.fromkeys(ones, st.sampled_from(MEMBERS)))


def loads(found, subscriptions):
    counts = Counter(found.values())
    return [counts[one] for one in subscriptions]


@given(st.sampled_from(Assignor), any_topics, partitions, st.data())
def test_every_partition_that_somebody_reads_has_one_reader_who_does(how, subs, ones, data):
    owners = data.draw(some_owners(ones))
    found = assign(how, subs, ones, CurrentOwners(owners))
    assert set(found) == {
        one for one in ones if any(one.topic in topics for topics in subs.values())
    }
    assert all(one.topic in subs[member] for one, member in found.items())
    assert found == assign(how, dict(reversed(subs.items())), ones[::-1], CurrentOwners(owners))


@given(st.sampled_from([Assignor.ROUND_ROBIN, Assignor.STICKY]), same_topics, partitions, st.data())
def test_members_with_the_same_topics_differ_by_one_at_most(how, subs, ones, data):
    found = loads(assign(how, subs, ones, CurrentOwners(data.draw(some_owners(ones)))), subs)
    assert max(found) - min(found) <= 1


@given(same_topics, partitions)
def test_range_gives_neighbours_of_each_topic_and_pieces_of_nearly_one_size(subs, ones):
    found = assign(Assignor.RANGE, subs, ones)
    for topic in TOPICS:
        readers = [found[one] for one in sorted(ones) if one.topic == topic]
        assert readers == sorted(readers)
        sizes = [readers.count(one) for one in subs]
        assert max(sizes) - min(sizes) <= 1


@given(same_topics, partitions.map(lambda ones: ones[:6]), st.data())
def test_sticky_moves_no_more_than_the_best_even_assignment_would(subs, ones, data):
    owners = data.draw(some_owners(ones))
    found = sticky(subs, ones, CurrentOwners(owners))
    fewest = min(
        moves(owners, every)
        for every in all_assignments(subs, ones)
        if max(loads(every, subs)) - min(loads(every, subs)) <= 1
    )
    assert moves(owners, found) == fewest


@given(any_topics, partitions.map(lambda ones: ones[:6]), st.data())
def test_sticky_is_as_even_as_the_subscriptions_allow(subs, ones, data):
    found = sticky(subs, ones, CurrentOwners(data.draw(some_owners(ones))))
    best = min(unevenness(every, subs) for every in all_assignments(subs, ones))
    assert unevenness(found, subs) == best


def all_assignments(subs, ones):
    """Each path to give every partition to one who reads it."""
    readers = [[name for name, topics in subs.items() if one.topic in topics] for one in ones]
    known = [(one, names) for one, names in zip(ones, readers, strict=True) if names]
    for chosen in product(*(names for _, names in known)):
        yield dict(zip((one for one, _ in known), chosen, strict=True))


def moves(owners, found):
    return sum(owners.get(one) != member for one, member in found.items())


def unevenness(found, subs):
    return sum(load * load for load in loads(found, subs))


@given(same_topics, partitions, st.data())
def test_sticky_changes_nothing_when_nothing_changed(subs, ones, data):
    found = sticky(subs, ones, CurrentOwners(data.draw(some_owners(ones))))
    assert sticky(subs, ones, CurrentOwners(found)) == found


def test_a_join_moves_only_the_share_of_the_new_member():
    ones = [TopicPartition("ants", number) for number in range(1000)]
    before = dict.fromkeys((f"m{number:03}" for number in range(99)), frozenset({"ants"}))
    held = sticky(before, ones, CurrentOwners({}))
    after = sticky({**before, "new": frozenset({"ants"})}, ones, CurrentOwners(held))
    assert {after[one] for one in ones if after[one] != held[one]} == {"new"}
    assert moves(held, after) == 10


def test_what_is_leaving_already_goes_before_what_is_not():
    ones = [TopicPartition("ants", number) for number in range(4)]
    owners = dict.fromkeys(ones, "ann")
    subs = dict.fromkeys(("ann", "bob"), frozenset({"ants"}))
    found = sticky(subs, ones, CurrentOwners(owners, leaving=(ones[0], ones[1])))
    assert [found[one] for one in ones] == ["bob", "bob", "ann", "ann"]


def test_more_members_than_partitions_leaves_some_with_nothing():
    ones = [TopicPartition("ants", 0), TopicPartition("ants", 1)]
    subs = dict.fromkeys(MEMBERS, frozenset({"ants"}))
    for how in Assignor:
        assert sorted(loads(assign(how, subs, ones), subs)) == [0, 0, 0, 1, 1]
