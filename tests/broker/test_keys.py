"""The key ring in the meta journal: what it lets in, what it refuses, and what a power cut leaves of it."""

import pytest

from penstock.api.command import Command
from penstock.api.keys import (
    CreateKey,
    Credential,
    DescribeKey,
    ListKeys,
    NewKey,
    RevokeKey,
    RotateKey,
)
from penstock.api.principals import Principal, Role
from penstock.broker import catalogue
from penstock.errors import (
    AlreadyExists,
    Forbidden,
    InvalidName,
    LastAdministrator,
    NotFound,
    Refused,
    UnsupportedFormat,
)
from penstock.sim import SimDisk

from .world import HOUR_MS, TOPIC, World, pull_the_plug

SHOP = CreateKey("shop", Role.PRODUCER, ("orders",))


def principal_of(world: World, text: str) -> Principal | None:
    found = world.node.keys.find(text, world.now().wall_ns)
    return None if found is None else found[0]


def rotated(world: World, new: NewKey, grace_ms: int = 0) -> NewKey:
    return world.execute(RotateKey(new.key.key_id, grace_ms))


def test_a_key_is_known_by_its_text_alone() -> None:
    world = World()
    new, other = world.execute(SHOP), world.execute(CreateKey("other", Role.ADMIN))
    assert principal_of(world, new.text) == Principal(
        "shop", Role.PRODUCER, ("orders",), new.key.key_id
    )
    key_id, _, secret = new.text.partition(".")
    assert len(secret) == 43
    wrong = [
        "",
        key_id,
        f"{key_id}.",
        secret,
        new.text[:-1],
        new.text + "=",
        f"{other.key.key_id}.{secret}",
        f"pk-000000000000.{secret}",
        new.text.upper(),
        "pk-\udcff.\udcff",
    ]
    assert not any(principal_of(world, one) for one in wrong)


def test_a_key_ends_with_its_time_its_grace_and_its_revocation() -> None:
    world = World()
    brief = world.execute(CreateKey("brief", Role.CONSUMER, lifetime_ms=HOUR_MS))
    lasting = world.execute(CreateKey("lasting", Role.CONSUMER))
    world.now(HOUR_MS - 1)
    assert principal_of(world, brief.text)
    world.now(1)
    assert not principal_of(world, brief.text)
    second = rotated(world, lasting, HOUR_MS)
    assert second.key.secrets == 2
    world.now(HOUR_MS - 1)
    assert principal_of(world, lasting.text)
    # A third secret leaves nothing of the first.
    third = rotated(world, second, HOUR_MS)
    live = [principal_of(world, one.text) is not None for one in (lasting, second, third)]
    assert live == [False, True, True]
    world.execute(RevokeKey(lasting.key.key_id))
    assert not any(principal_of(world, one.text) for one in (second, third))
    assert [one.name for one in world.execute(ListKeys())] == ["brief"]


def test_the_last_key_of_an_administrator_is_revoked_only_by_force() -> None:
    world = World()
    ops, second = (world.execute(CreateKey(name, Role.ADMIN)).key for name in ("ops", "second"))
    # None of these may change all keys.
    world.execute(CreateKey("some", Role.ADMIN, ("orders",)))
    world.execute(SHOP)
    world.execute(CreateKey("brief", Role.ADMIN, lifetime_ms=HOUR_MS))
    world.now(HOUR_MS)
    world.execute(RevokeKey(second.key_id))
    with pytest.raises(LastAdministrator, match="--data-dir"):
        world.execute(RevokeKey(ops.key_id))
    for one in world.execute(ListKeys()):
        if one.name != "ops":
            world.execute(RevokeKey(one.key_id))
    world.execute(RevokeKey(ops.key_id, is_forced=True))
    assert world.execute(ListKeys()) == []


def test_a_credential_says_how_long_it_is_good() -> None:
    world = World()
    new = world.execute(CreateKey("brief", Role.CONSUMER, lifetime_ms=2))
    ever = world.execute(CreateKey("ever", Role.CONSUMER))
    found = [world.node.keys.find(one.text, world.wall_ns) for one in (new, ever)]
    brief, lasting = (one[1] for one in found)
    keys, now_ns = world.node.keys, world.wall_ns
    assert (keys.left_ns(brief, now_ns), keys.left_ns(lasting, now_ns)) == (2_000_000, None)
    assert keys.left_ns(brief, now_ns + 3_000_000) == 0
    assert keys.left_ns(Credential("pk-000000000000", brief.sha256), now_ns) == 0
    world.execute(RevokeKey(ever.key.key_id))
    assert keys.left_ns(lasting, now_ns) == 0


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (CreateKey("shop", Role.ADMIN), AlreadyExists),
        (CreateKey("more", Role.ADMIN, key_id="pk-00000000000a"), AlreadyExists),
        (CreateKey("more", Role.ADMIN, key_id="pk-00"), Refused),
        (CreateKey("a/b", Role.ADMIN), InvalidName),
        # What has no owner would be its own.
        (CreateKey("local", Role.PRODUCER), Refused),
        (CreateKey("more", Role.ADMIN, ("a/b",)), InvalidName),
        (RotateKey("pk-00000000000b", 0), NotFound),
        (RevokeKey("pk-00000000000b"), NotFound),
        (DescribeKey("pk-00000000000b"), NotFound),
    ],
)
def test_what_cannot_be_done_changes_nothing(command: Command, error) -> None:
    world = World()
    world.execute(CreateKey("shop", Role.PRODUCER, key_id="pk-00000000000a"))
    before = world.execute(ListKeys())
    with pytest.raises(error):
        world.execute(command)
    assert world.execute(ListKeys()) == before


def test_a_principal_with_prefixes_names_them_and_reaches_no_other_key() -> None:
    world = World()
    team = Principal("team", Role.ADMIN, ("orders",))
    ours, theirs = world.execute(SHOP).key, world.execute(CreateKey("all", Role.ADMIN)).key

    def run(command: Command):
        return world.node.execute(command, team, world.now()).outcome()

    for command in (
        ListKeys(),
        ListKeys(within=("",)),
        ListKeys(within=("orders", "bills")),
        DescribeKey(ours.key_id),
        RotateKey(ours.key_id, 0),
        RevokeKey(ours.key_id),
        RevokeKey(theirs.key_id, within=("o",)),
        CreateKey("more", Role.READONLY),
        CreateKey("more", Role.READONLY, ("bills",)),
    ):
        with pytest.raises(Forbidden):
            run(command)
    for command in (DescribeKey, RevokeKey):
        with pytest.raises(NotFound):
            run(command(theirs.key_id, within=("orders",)))
    assert run(ListKeys(within=("orders",))) == [ours]
    assert run(CreateKey("more", Role.READONLY, ("orders.eu",))).key.name == "more"
    run(RevokeKey(ours.key_id, within=("orders.eu", "orders")))


def test_a_secret_is_in_no_file_and_in_no_text_of_a_reply() -> None:
    world = World()
    new = world.execute(SHOP)
    secrets = [new.text.partition(".")[2], rotated(world, new).text.partition(".")[2]]
    world.node.close()
    kept = b"".join(world.disk.tree().files.values())
    assert b"shop" in kept
    assert not any(one.encode() in kept for one in secrets)
    assert secrets[0] not in repr(new) + str(new)


def test_a_key_outlives_a_power_cut_without_a_sync_after_it(monkeypatch) -> None:
    monkeypatch.setattr(catalogue, "_RECORDS_A_SNAPSHOT", 3)
    world = World()
    made = [world.execute(CreateKey(f"app-{one}", Role.PRODUCER)) for one in range(5)]
    for _ in range(3):
        world.lose_unsynced()
        assert all(principal_of(world, one.text) for one in made)
        second = rotated(world, made.pop(0))
        gone = made.pop(0)
        world.execute(RevokeKey(gone.key.key_id))
        world.lose_unsynced()
        assert principal_of(world, second.text)
        assert not principal_of(world, gone.text)
        made += [second, world.execute(CreateKey(gone.key.name, Role.PRODUCER))]


@pytest.mark.parametrize("records_a_snapshot", [1000, 2])
def test_at_every_crash_state_a_key_is_as_before_or_as_after(
    effort, monkeypatch, records_a_snapshot
) -> None:
    """Made, rotated and revoked, the plug pulled anywhere: what was answered holds, and no key is half of one."""
    monkeypatch.setattr(catalogue, "_RECORDS_A_SNAPSHOT", records_a_snapshot)
    texts: dict[str, str] = {}

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        first = world.execute(SHOP)
        texts["made"] = first.text
        disk.mark("made")
        second = rotated(world, first)
        texts["rotated"] = second.text
        disk.mark("rotated")
        world.publish(b"between")
        third = rotated(world, second, HOUR_MS)
        texts["kept"] = third.text
        disk.mark("kept")
        world.execute(RevokeKey(first.key.key_id))
        disk.mark("revoked")
        texts["again"] = world.execute(SHOP).text
        disk.mark("again")

    # What works after each step, and after the one that may have been under way.
    steps = ["made", "rotated", "kept", "revoked", "again"]
    working = [set(), {"made"}, {"rotated"}, {"rotated", "kept"}, set(), {"again"}]

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        reached = max((steps.index(one) + 1 for one in marks), default=0)
        found = {name for name, text in texts.items() if principal_of(world, text)}
        assert found in working[reached : reached + 2]
        assert len(world.execute(ListKeys())) == bool(found)
        if not found:
            assert principal_of(world, world.execute(SHOP).text)
        assert TOPIC in world.topics() or not marks

    assert pull_the_plug(scenario, check, effort) > 40


def test_a_directory_with_its_keys_in_a_file_is_refused_by_name() -> None:
    world = World()
    world.disk.create("keys.json")
    before = world.disk.tree()
    with pytest.raises(UnsupportedFormat, match=r"keys\.json .*begin with an empty one"):
        world.kill()
    assert world.disk.tree() == before
