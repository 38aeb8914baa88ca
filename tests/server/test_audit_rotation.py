"""The audit log over many files: one chain, whatever crashes, and no line is answered before it is on the disk."""

import asyncio
import random
from concurrent.futures import Future
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DiskFailed, Fatal, NoSpace, SyncFailed, TooManyRequests, Unavailable
from penstock.server.audit import LINES_WAITING_MAX, AuditLog
from penstock.server.audit_files import (
    AUDIT_FILE,
    HEAD_FILE,
    Place,
    complete_files,
    read_back,
    read_entry,
    read_head,
    verify,
)
from penstock.server.audit_settings import AuditSection
from penstock.sim import CrashKind, Fault, SimDisk, check_crashes
from penstock.sim.faults import Call, Misbehaviour
from penstock.sim.operations import Mark, Sync, Tree, Write

# Two or three lines a file.
SMALL = 600
HOUR_NS = 3_600_000_000_000


def opened(disk: SimDisk, now_ns: list[int] | None = None, **settings: int) -> AuditLog:
    section = AuditSection(**{"rotate_bytes": SMALL, **settings})
    return AuditLog(disk, lambda: now_ns[0] if now_ns else 1, section, on_fatal=lambda _error: None)


def paths_of(disk: SimDisk) -> list[str]:
    return [file.path for file in complete_files(disk)] + [AUDIT_FILE]


def texts_of(disk: SimDisk) -> list[str]:
    """What stands in the lines of all files, oldest first."""
    files = disk.tree().files
    lines = [line for path in paths_of(disk) for line in files.get(path, b"").splitlines()]
    return [entry.where for line in lines if (entry := read_entry(line)) is not None]


def written(disk: SimDisk, count: int, **settings: int) -> list[str]:
    texts = [f"topic-{number:03d}" for number in range(count)]
    log = opened(disk, **settings)
    for text in texts:
        log.write("ops", "create a topic", text)
    log.close()
    return texts


def test_the_chain_goes_from_file_to_file():
    disk = SimDisk()
    texts = written(disk, 20)
    assert len(complete_files(disk)) > 5
    assert texts_of(disk) == texts
    assert verify(disk) == []
    files = disk.tree().files
    first = read_entry(files[AUDIT_FILE].splitlines()[0])
    last = read_entry(files[paths_of(disk)[-2]].splitlines()[-1])
    assert first.previous == last.hash
    assert read_head(disk).lines == 20
    # After a start, too.
    written(disk, 20)
    assert texts_of(disk) == texts * 2
    assert verify(disk) == []


def test_a_file_that_is_old_is_complete():
    disk, now_ns = SimDisk(), [HOUR_NS]
    log = opened(disk, now_ns, rotate_bytes=1 << 20, rotate_hours=24)
    log.write("ops", "create a topic", "a")
    now_ns[0] += 24 * HOUR_NS - 1
    log.write("ops", "create a topic", "b")
    log.close()
    log = opened(disk, now_ns, rotate_bytes=1 << 20, rotate_hours=24)
    assert complete_files(disk) == []
    now_ns[0] += 1
    log.write("ops", "create a topic", "c")
    log.close()
    assert [file.first for file in complete_files(disk)] == [1]
    assert texts_of(disk) == ["a", "b", "c"]
    assert verify(disk) == []


@pytest.mark.parametrize("keep", [0, 2])
def test_files_that_are_not_kept_are_removed_and_a_line_says_so(keep):
    disk = SimDisk()
    texts = written(disk, 30, keep_files=keep)
    assert len(complete_files(disk)) == keep
    assert verify(disk) == []
    kept = texts_of(disk)
    assert [text for text in kept if text.startswith("topic")] == texts[
        -sum("topic" in t for t in kept) :
    ]
    assert any(text.startswith("lines ") and "the hash of the last is" in text for text in kept)
    # What is removed by hand beyond that shows.
    first, *_ = paths_of(disk)
    disk.vanish(first)
    assert verify(disk) != []


def test_all_files_are_kept_by_default():
    disk = SimDisk()
    written(disk, 40)
    assert texts_of(disk)[0] == "topic-000"
    assert AuditSection().keep_files == -1


@given(st.data())
def test_what_is_changed_or_removed_in_any_file_shows(data):
    disk = SimDisk()
    written(disk, data.draw(st.integers(4, 14)), keep_files=data.draw(st.sampled_from([-1, 2])))
    files = dict(disk.tree().files)
    path = data.draw(st.sampled_from([path for path in paths_of(disk) if files[path]]))
    lines = files[path].splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines) - 1))
    match data.draw(st.sampled_from(["change", "remove", "remove file", "twice", "rename"])):
        case "change":
            lines[place] = lines[place].replace(b'"who":"', b'"who":"x', 1)
        case "remove":
            del lines[place]
        case "twice":
            lines.insert(place, lines[place])
        case "remove file":
            lines = None
        case "rename":
            # A number that no file of the log has.
            files["audit-000000000099.jsonl"] = b"".join(lines)
            lines = None
    files.pop(path)
    if lines is not None:
        files[path] = b"".join(lines)
    assert verify(SimDisk(Tree(files, frozenset()))) != []
    assert verify(disk) == []


@pytest.mark.parametrize("keep", [-1, 1])
def test_a_power_cut_at_any_moment_breaks_no_chain_and_loses_no_line_that_was_answered(
    keep, tier, effort
):
    def scenario(disk: SimDisk) -> None:
        for start in (0, 6):
            log = opened(disk, keep_files=keep)
            for number in range(start, start + 6):
                if number % 3 == 0:
                    log.submit("reader", "publish", f"refused-{number}", is_allowed=False)
                if number % 4 == 1:
                    with suppress(LookupError), log.noted("ops", "create a key", "never"):
                        raise LookupError
                log.write("ops", "create a topic", f"topic-{number}")
                disk.mark(f"topic-{number}")
            log.close()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        log = opened(disk, keep_files=keep)
        log.write("ops", "create a topic", "afterwards")
        log.close()
        assert verify(disk) == [], verify(disk)
        texts = texts_of(disk)
        assert texts[-1] == "afterwards" or "afterwards" in texts[-2:]
        removed = read_head(disk).removed_lines
        answered = [text for text in marks if text in texts]
        assert [text for text in texts if text in marks] == answered
        if not removed:
            assert answered == [*marks]
        else:
            # The oldest are gone, and no others.
            assert answered == [*marks][len(marks) - len(answered) :]

    quick = (CrashKind.ALL, CrashKind.DURABLE, CrashKind.DROP_ONE)
    counts = check_crashes(
        scenario,
        check,
        entropy=random.Random(1),
        kinds=quick if tier == "check" else tuple(CrashKind),
        subsets=effort(check=1, test=6, torture=60),
    )
    assert counts.distinct > 100


def test_many_lines_that_wait_are_synced_together_and_answered_afterwards():
    disk = SimDisk()
    log = opened(disk, rotate_bytes=1 << 20)
    lines: list[Future[None]] = []
    with log.noted("ops", "create a key", "first"):
        for number in range(100):
            line = log.submit("ops", "create a topic", f"topic-{number}")
            line.add_done_callback(lambda _line: disk.mark("answered"))
            lines.append(line)
        before = len(disk.operations)
    for line in lines:
        line.result()
    log.close()
    after = disk.operations[before:]
    of_lines = [one for one in after if isinstance(one, Write | Sync) and one.path == AUDIT_FILE]
    assert [type(one) for one in of_lines] == [Write] * 100 + [Sync]
    answers = [place for place, one in enumerate(after) if isinstance(one, Mark)]
    assert len(answers) == 100
    assert after.index(of_lines[-1]) < answers[0]


async def test_a_request_that_is_cancelled_has_its_line_and_stops_no_other():
    disk = SimDisk()
    log = opened(disk)
    with log.noted("ops", "create a key", "first"):
        cancelled = asyncio.wrap_future(log.submit("ops", "create a topic", "cancelled"))
        cancelled.cancel()
        # What it was made of hears of it in a turn of the loop.
        await asyncio.sleep(0)
    await asyncio.wrap_future(log.submit("ops", "create a topic", "after"))
    log.close()
    assert texts_of(disk) == ["first", "cancelled", "after"]


def test_so_many_lines_wait_and_no_more_commands_are_admitted():
    log = opened(SimDisk(), rotate_bytes=1 << 30)
    log.require_room()
    with log.noted("ops", "create a key", "first"):
        # The first line counts until its command is done.
        for _ in range(LINES_WAITING_MAX - 1):
            log.require_room()
            line = log.submit("ops", "create a topic", "x", is_allowed=False)
        with pytest.raises(TooManyRequests, match="lines of the audit log"):
            log.require_room()
        # A command that was done before has its line all the same.
        late = log.submit("ops", "create a topic", "late")
    late.result()
    line.result()
    log.write("ops", "create a topic", "later")
    log.require_room()
    log.close()


def test_a_line_without_room_is_refused_by_itself():
    disk = SimDisk()
    log = opened(disk, rotate_bytes=1 << 20)
    log.write("ops", "create a topic", "a")
    disk.inject(Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part=AUDIT_FILE, times=2))
    with pytest.raises(NoSpace):
        log.write("ops", "create a topic", "b")
    with pytest.raises(NoSpace), log.noted("ops", "create a key", "c"):
        raise AssertionError("its line is not on the disk")
    log.write("ops", "create a topic", "d")
    log.close()
    assert texts_of(disk) == ["a", "d"]
    assert verify(disk) == []


@pytest.mark.parametrize("call", [Call.RENAME, Call.CREATE, Call.APPEND])
@pytest.mark.parametrize("path", [HEAD_FILE, AUDIT_FILE])
def test_a_full_disk_during_a_rotation_breaks_no_chain(call, path):
    for nth in range(1, 9):
        disk = SimDisk()
        log = opened(disk)
        disk.inject(Fault(call=call, does=Misbehaviour.NO_SPACE, path_part=path, nth=nth, times=2))
        texts = []
        for number in range(12):
            with suppress(NoSpace):
                log.write("ops", "create a topic", f"topic-{number}")
                texts.append(f"topic-{number}")
        log.close()
        assert texts_of(disk) == texts
        assert verify(disk) == []
        disk.faults.clear()
        written(disk, 3)
        assert verify(disk) == []


def test_a_full_disk_where_a_new_file_is_due_refuses_the_command_of_a_held_line_and_no_more():
    disk, fatal = SimDisk(), []
    log = AuditLog(disk, lambda: 1, AuditSection(rotate_bytes=1), on_fatal=fatal.append)
    log.write("ops", "create a topic", "a")
    disk.inject(Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part=AUDIT_FILE))
    with pytest.raises(NoSpace), log.noted("ops", "create a key", "b"):
        raise AssertionError("its line is not on the disk")
    log.write("ops", "create a topic", "c")
    with log.noted("ops", "create a key", "d"):
        pass
    log.close()
    assert fatal == []
    assert texts_of(disk) == ["a", "c", "d"]
    assert verify(disk) == []


def test_a_start_that_removes_files_while_a_new_one_is_due_names_all_that_are_gone():
    disk, now_ns = SimDisk(), [HOUR_NS]
    log = opened(disk, now_ns, rotate_bytes=1 << 20, rotate_hours=1)
    for number in range(8):
        log.write("ops", "create a topic", f"topic-{number}")
        now_ns[0] += HOUR_NS
    log.close()
    log = opened(disk, now_ns, rotate_bytes=1 << 20, rotate_hours=1, keep_files=2)
    log.write("ops", "create a topic", "afterwards")
    log.close()
    assert len(complete_files(disk)) == 2
    assert texts_of(disk)[-1] == "afterwards"
    assert verify(disk) == []


@pytest.mark.parametrize("does", [Misbehaviour.SYNC_FAILED, Misbehaviour.DISK_FAILED])
def test_a_disk_that_fails_ends_the_log_and_leaves_no_command_without_an_answer(does):
    disk, fatal = SimDisk(), []
    log = AuditLog(disk, lambda: 1, on_fatal=fatal.append)
    with log.noted("ops", "create a key", "first"):
        lines = [log.submit("ops", "create a topic", "x") for _ in range(3)]
        disk.inject(Fault(call=Call.SYNC, does=does, path_part=AUDIT_FILE))
    errors = [line.exception() for line in lines]
    assert [type(error) for error in errors] == [type(fatal[0])] * 3
    assert isinstance(fatal[0], SyncFailed | DiskFailed | Fatal)
    assert len(set(map(id, errors))) == 3, "each has an error of its own"
    with pytest.raises(Unavailable):
        log.write("ops", "create a topic", "later")
    log.close()


def test_lines_are_read_back_over_all_files():
    disk = SimDisk()
    texts = written(disk, 25)
    log = opened(disk)
    seen, place = [], Place(log.newest)
    while place is not None:
        page = read_back(disk, log.newest, place, 7)
        assert len(page.entries) <= 7
        seen += [entry.where for entry in page.entries]
        place = page.before
    assert seen == texts[::-1]
    # A page that was begun before its file was complete goes on in it.
    newest = log.newest
    first = read_back(disk, newest, Place(newest), 1)
    for number in range(6):
        log.write("ops", "create a topic", f"more-{number}")
    assert log.newest > newest
    if first.before.first == newest:
        following = read_back(disk, log.newest, first.before, 1)
        assert [entry.where for entry in following.entries] == [texts[-2]]
    # Of a file that is gone there is nothing.
    disk.vanish(complete_files(disk)[0].path)
    assert read_back(disk, log.newest, Place(1), 7) == ([], None)
    log.close()


def test_what_a_power_cut_left_in_pieces_behind_the_head_is_told():
    disk = SimDisk()
    written(disk, 3, rotate_bytes=1 << 20)
    files = dict(disk.tree().files)
    files[AUDIT_FILE] += b"\0" * 50 + b"\n" + b'{"at_ns'
    disk = SimDisk(Tree(files, frozenset()))
    log = opened(disk, rotate_bytes=1 << 20)
    assert log.lost == "51 bytes behind line 3 do not go on with it"
    log.close()
    assert verify(disk) == []
