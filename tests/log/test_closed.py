"""A log that was closed, for the next owner of it in the same process."""

import pytest

from penstock.codec import Columns, encode
from penstock.config import LogConfig
from penstock.errors import DamagedFile, WrongLog
from penstock.log import Log, open_log
from penstock.log.closed import ClosedLogs
from penstock.log.opening import KnownEnd
from penstock.log.reign import FollowingReign, LocalReign
from penstock.model import LogId
from penstock.sim import SimDisk

ID = LogId(77)


def opened(disk: SimDisk, closed: ClosedLogs | None = None, **more) -> Log:
    reign = LocalReign() if closed is None else FollowingReign(closed)
    log, _ = open_log(disk, "x", log_id=ID, config=LogConfig(), reign=reign, **more)
    return log


def append(log: Log) -> None:
    log.append(encode(Columns(values=[b"x"], timestamps=1)), now_ns=1)


def written(disk: SimDisk, count: int = 3) -> Log:
    log = opened(disk)
    for _ in range(count):
        append(log)
    return log


def closed(log: Log) -> ClosedLogs:
    logs = ClosedLogs()
    logs.put(log)
    log.discard()
    return logs


def test_the_next_owner_knows_what_a_reader_of_the_files_would() -> None:
    disk = SimDisk()
    log = written(disk)
    log.sync()
    again, known = opened(disk, closed(log)), opened(SimDisk(disk.tree()), ClosedLogs())
    assert (again.end, again.epochs, again.start_offset) == (known.end, known.epochs, 0)
    assert again.read(1, bytes_max=1000).base_offset == 1


def test_a_log_of_which_something_is_not_durable_is_read() -> None:
    disk = SimDisk()
    logs = closed(written(disk))
    assert logs.get("x") is None


def test_what_was_written_since_is_there_when_it_is_opened_once_more() -> None:
    disk = SimDisk()
    log = written(disk)
    log.sync()
    logs = closed(log)
    first = opened(disk, logs)
    first.discard()
    more = opened(disk)
    append(more)
    more.sync()
    more.discard()
    assert opened(disk, logs).end_offset == 4


def test_a_log_that_ends_before_what_is_known_is_damaged_also_if_this_process_closed_it() -> None:
    disk = SimDisk()
    log = written(disk)
    log.sync()
    with pytest.raises(DamagedFile):
        opened(disk, closed(log), known=KnownEnd(5, 9, 0))


def test_another_log_in_the_same_directory_is_not_taken_for_it() -> None:
    disk = SimDisk()
    log = written(disk)
    log.sync()
    with pytest.raises(WrongLog):
        open_log(
            disk,
            "x",
            log_id=LogId(78),
            config=LogConfig(),
            reign=FollowingReign(closed(log)),
        )
