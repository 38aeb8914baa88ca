"""Members that the server keeps: a key that has filled its share is refused, and no member of another key goes."""

import pytest

from penstock.api.principals import LOCAL, Principal, Role
from penstock.config import LimitsConfig
from penstock.errors import ShareFull
from penstock.server.kafka.members import KafkaMembers
from penstock.server.shared_members import SharedMembers

LIMITS = LimitsConfig(members_max=5, members_per_key_max=3)
ANN, BEN, CAY = (Principal(name, Role.CONSUMER, key_id=f"pk-{name}") for name in ("a", "b", "c"))


class Rig:
    """Both registries, with one clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.shared = SharedMembers(lambda: self.now_s)
        self.kafka = KafkaMembers(lambda: self.now_s)

    def join(self, principal: Principal, name: str) -> None:
        self.shared.join("g", name, "client", ["orders"], 10, by=principal, limits=LIMITS)

    def keep(self, principal: Principal, name: str) -> None:
        self.kafka.keep(principal, "g", name, LIMITS)


@pytest.mark.parametrize("way", ["join", "keep"])
def test_a_full_share_refuses_its_key_and_evicts_nobody(way: str) -> None:
    rig = Rig()
    add = getattr(rig, way)
    for number in range(3):
        add(ANN, f"ann-{number}")
    with pytest.raises(ShareFull) as refusal:
        add(ANN, "ann-3")
    assert refusal.value.fields["setting"] == "limits.members_per_key_max"
    # Once more is the same member.
    add(ANN, "ann-0")
    add(BEN, "ben-0")
    add(BEN, "ben-1")
    with pytest.raises(ShareFull) as refusal:
        add(CAY, "cay-0")
    assert refusal.value.fields["setting"] == "limits.members_max"
    there = {*rig.kafka.of_group("g")} if way == "keep" else {*names_in(rig.shared)}
    assert there == {"ann-0", "ann-1", "ann-2", "ben-0", "ben-1"}


def names_in(shared: SharedMembers) -> list[str]:
    names = [f"{who}-{number}" for who in ("ann", "ben", "cay") for number in range(5)]
    return [name for name in names if shared.get("g", name) is not None]


def test_who_leaves_or_is_missed_makes_room() -> None:
    rig = Rig()
    for number in range(3):
        rig.join(ANN, f"ann-{number}")
        rig.keep(ANN, f"ann-{number}")
    rig.shared.leave("g", "ann-0")
    rig.kafka.forget(ANN, "g", "ann-0")
    rig.join(ANN, "ann-3")
    rig.keep(ANN, "ann-3")
    rig.shared.watch(rig.kafka.forget_missed)
    rig.now_s = 11
    assert len(rig.shared.take_missed()) == 3
    assert not rig.kafka.of_group("g")
    for number in range(3):
        rig.join(ANN, f"next-{number}")
        rig.keep(ANN, f"next-{number}")


def test_members_of_kafka_that_were_silent_for_long_make_room_for_all_keys() -> None:
    rig = Rig()
    for principal, names in ((ANN, ("a", "b", "c")), (BEN, ("d", "e"))):
        for name in names:
            rig.keep(principal, name)
    rig.now_s = 599
    assert rig.kafka.find(ANN, "g", "a") is not None
    with pytest.raises(ShareFull):
        rig.keep(CAY, "f")
    rig.now_s = 601
    rig.keep(CAY, "f")
    assert {*rig.kafka.of_group("g")} == {"a", "f"}


def test_a_name_that_another_key_takes_counts_for_that_key() -> None:
    rig = Rig()
    for number in range(3):
        rig.join(ANN, f"ann-{number}")
    rig.join(BEN, "ann-0")
    rig.join(ANN, "ann-3")
    with pytest.raises(ShareFull):
        rig.join(ANN, "ann-0")


def test_without_keys_only_the_node_has_a_limit() -> None:
    rig = Rig()
    for number in range(5):
        rig.join(LOCAL, f"one-{number}")
        rig.keep(LOCAL, f"one-{number}")
    with pytest.raises(ShareFull):
        rig.join(LOCAL, "one-5")
    with pytest.raises(ShareFull):
        rig.keep(LOCAL, "one-5")
