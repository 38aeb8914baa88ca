"""The quick replay of damaged recordings against a slow one that starts from the beginning each time."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.sim import Call, CrashKind, CrashStates, Fault, Misbehaviour, Model, SimDisk, Tree
from penstock.sim.damage import random_damage
from penstock.sim.durability import Damage, Ext4, Strict
from penstock.sim.operations import (
    Create,
    MakeDirectory,
    Mark,
    Remove,
    RemoveDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Write,
    parent_of,
)
from penstock.sim.replay import Replay

START = Tree({"a": b"start of a", "d/b": b"start of b"}, frozenset({"d"}))
FILES = st.sampled_from(["a", "c", "d/b", "d/e/f"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), FILES, st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("truncate"), FILES, st.integers(0, 12)),
        st.tuples(st.just("create"), FILES),
        st.tuples(st.just("sync"), FILES),
        st.tuples(st.just("rename"), FILES, FILES),
        st.tuples(st.just("remove"), FILES),
        st.tuples(st.just("sync_directory"), st.sampled_from(["", "d", "d/e"])),
        st.tuples(st.just("make_directories"), st.just("d/e")),
        st.tuples(st.just("remove_directory"), st.sampled_from(["d", "d/e"])),
    ),
    max_size=14,
)


def perform(disk: SimDisk, step: tuple) -> None:
    method, *arguments = step
    if method == "make_directories":
        # So that the loss of a directory is tried too; an honest disk makes them durable at once.
        disk.inject(Fault(call=Call.SYNC_DIRECTORY, does=Misbehaviour.LIE))
    try:
        if method in {"append", "truncate", "sync"}:
            getattr(disk.open(arguments[0]), method)(*arguments[1:])
        else:
            getattr(disk, method)(*arguments)
    except (PenstockError, AssertionError):
        pass  # A missing file, a truncation beyond the end: refused, and nothing recorded.
    disk.faults.clear()


def record(steps: list[tuple]) -> SimDisk:
    disk = SimDisk(START)
    for step in steps:
        perform(disk, step)
    return disk


def slow_replay(operations: list, damage: Damage) -> tuple[dict[str, bytes], set[str]]:
    names, directories = START.inodes(), set(START.directories)
    contents = {number: bytearray(data) for number, data in enumerate(START.files.values())}
    for number, operation in enumerate(operations):
        left = damage.get(number, b"")
        if left is None:
            continue
        match operation:
            case Write(_, inode, position, data):
                content = contents.setdefault(inode, bytearray())
                content.extend(bytes(max(0, position - len(content))))
                data = left or data
                content[position : position + len(data)] = data
            case Truncate(_, inode, size):
                content = contents.setdefault(inode, bytearray())
                content.extend(bytes(max(0, size - len(content))))
                del content[size:]
            case Create(path, inode):
                names[path] = inode
            case MakeDirectory(path):
                directories.add(path)
            case Rename(old, new, inode):
                names.pop(old, None)
                names[new] = inode
            case Remove(path):
                names.pop(path, None)
            case RemoveDirectory(path):
                directories = {one for one in directories if not f"{one}/".startswith(f"{path}/")}
                names = {one: at for one, at in names.items() if not one.startswith(f"{path}/")}

    def is_there(path: str) -> bool:
        parent = parent_of(path)
        return not parent or (parent in directories and is_there(parent))

    files = {path: bytes(contents.get(names[path], b"")) for path in names if is_there(path)}
    return files, set(filter(is_there, directories))


@given(STEPS, st.integers(0, 1 << 30))
def test_damaged_trees_are_those_of_a_replay_from_the_start(steps, seed):
    operations, entropy = record(steps).operations, random.Random(seed)
    for model, durability in ((Model.STRICT, Strict()), (Model.EXT4, Ext4())):
        replay = Replay(START, model)
        for place, operation in enumerate(operations):
            replay.advance(place, operation)
            durability.advance(place, operation)
            damage = random_damage(replay.volatile, entropy)
            whole = durability.with_consequences(damage)
            tree = replay.tree(damage)
            expected = slow_replay(operations[: place + 1], whole)
            assert (dict(tree.files), set(tree.directories)) == expected


@given(STEPS)
def test_without_damage_the_tree_is_what_the_disk_shows(steps):
    for model in Model:
        disk, replay, done = SimDisk(START), Replay(START, model), 0
        for step in steps:
            perform(disk, step)
            for place in range(done, len(disk.operations)):
                replay.advance(place, disk.operations[place])
            done = len(disk.operations)
            assert replay.tree({}) == disk.tree()


@given(STEPS)
def test_what_was_synced_everywhere_cannot_be_lost(steps):
    disk = record(steps)
    for path in disk.tree().files:
        disk.open(path).sync()
    for directory in ("", *disk.tree().directories):
        disk.sync_directory(directory)
    for model in Model:
        replay = Replay(START, model)
        for place, operation in enumerate(disk.operations):
            replay.advance(place, operation)
        left = replay.tree(dict.fromkeys(replay.volatile))
        assert left == disk.tree()


@given(STEPS, st.integers(0, 1 << 30))
def test_the_strict_model_allows_whatever_ext4_does(steps, seed):
    entropy = random.Random(seed)
    strict, ext4 = Strict(), Ext4()
    for place, operation in enumerate(record(steps).operations):
        strict.advance(place, operation)
        ext4.advance(place, operation)
        whole = ext4.with_consequences(random_damage(ext4.volatile, entropy))
        assert whole.keys() <= strict.volatile.keys()


@given(STEPS)
def test_names_on_ext4_are_those_of_some_moment_since_the_last_sync(steps):
    disk = record(steps)
    operations = disk.operations
    kinds = [kind for kind in CrashKind if kind is not CrashKind.SUBSETS]
    for state in CrashStates(disk, Model.EXT4, kinds=kinds, entropy=random.Random(1)):
        done = operations[: state.boundary]
        synced = [n for n, op in enumerate(done) if isinstance(op, Sync | SyncDirectory)]
        moments = range(synced[-1] if synced else 0, len(done) + 1)
        names = [set(slow_replay(done[:moment], {})[0]) for moment in moments]
        assert set(state.tree.files) in names


@given(STEPS)
def test_a_mark_changes_no_tree(steps):
    plain, marked = record(steps), SimDisk(START)
    for step in steps:
        perform(marked, step)
        marked.mark("here")
    assert [entry for entry in marked.operations if not isinstance(entry, Mark)] == plain.operations
    left, also_left = (
        {
            state.tree.fingerprint()
            for state in CrashStates(disk, Model.STRICT, entropy=random.Random(1))
        }
        for disk in (plain, marked)
    )
    assert left == also_left
