"""The agenda of a node, against a dictionary."""

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.partition.agenda import NEVER_NS, Agenda


class Place:
    """Stands for a partition, of which an agenda knows nothing."""


STEPS = st.one_of(
    st.tuples(st.just("expect"), st.integers(0, 4), st.integers(0, 9) | st.just(NEVER_NS)),
    st.tuples(st.just("take"), st.integers(0, 9), st.none()),
    st.tuples(st.just("forget"), st.integers(0, 4), st.none()),
)


@given(st.lists(STEPS, max_size=60))
def test_it_knows_the_earliest_time_of_each(steps):
    agenda, places, known = Agenda(), [Place() for _ in range(5)], {}
    in_use = {*places[:4]}
    for one in in_use:
        agenda.enrol(one)
    for what, number, due_ns in steps:
        if what == "expect":
            agenda.expect(places[number], due_ns)
            if due_ns != NEVER_NS and places[number] in in_use:
                known[places[number]] = min(due_ns, known.get(places[number], due_ns))
        elif what == "take":
            due = {one for one, at in known.items() if at <= number}
            found = agenda.take(number)
            assert (len(found), {*found}) == (len(due), due)
            known = {one: at for one, at in known.items() if one not in due}
        else:
            agenda.forget(places[number])
            in_use.discard(places[number])
            known.pop(places[number], None)
        assert agenda.next_ns() == min(known.values(), default=NEVER_NS)


def test_a_partition_that_is_forgotten_is_kept_by_nothing():
    agenda, place = Agenda(), Place()
    seen = weakref.ref(place)
    agenda.enrol(place)
    agenda.expect(place, 1 << 60)
    agenda.forget(place)
    del place
    gc.collect()
    assert seen() is None


def test_times_that_nearer_ones_replace_do_not_pile_up():
    agenda, place, other = Agenda(), Place(), Place()
    agenda.enrol(place)
    agenda.enrol(other)
    agenda.expect(other, 1 << 50)
    for now_ns in range(5000):
        # Something is far away, by a clock that is read anew each time, and something is due soon.
        agenda.expect(place, (1 << 60) + now_ns)
        agenda.expect(place, now_ns)
        assert agenda.take(now_ns) == [place]
    agenda.expect(place, 1 << 60)
    gc.collect()
    held = [one for one in gc.get_referrers(place) if isinstance(one, tuple)]
    assert len(held) < 500
