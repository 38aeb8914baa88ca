"""Files of the audit log: whole or untouched, and known for what they are when they are not."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from penstock.cli.root import root
from penstock.config import StorageConfig
from penstock.errors import FileMissing
from penstock.runtime import RealDisk
from penstock.server import audit_files
from penstock.server.audit import AuditLog

from .rigs import in_process, until
from .test_full_disk import fill_up, small_disk  # noqa: F401 - a fixture


def now_ns() -> int:
    return 1_700_000_000_000_000_000


@pytest.fixture
def disk(tmp_path):
    with RealDisk(tmp_path, StorageConfig()) as disk:
        yield disk


def lines_of(data) -> list[bytes]:
    return (data / audit_files.AUDIT_FILE).read_bytes().splitlines()


def problems_of(disk) -> list[int]:
    return [problem.line for problem in audit_files.verify(disk)]


def written(disk, count: int) -> AuditLog:
    log = AuditLog(disk, now_ns)
    for number in range(count):
        log.write("ops", "create a topic", f"orders-{number}")
    return log


def test_directory_without_a_broker_is_no_good_audit_log(tmp_path):
    verify = ["audit", "verify", str(tmp_path)]
    refused = CliRunner().invoke(root, verify)
    assert isinstance(refused.exception, FileMissing)
    # A broker whose administrators did nothing yet has no lines.
    tmp_path.joinpath("meta").mkdir()
    assert CliRunner().invoke(root, verify).exit_code == 0


def test_lines_removed_at_the_end_show(tmp_path, disk):
    written(disk, 5).close()
    verify = ["audit", "verify", str(tmp_path)]
    assert CliRunner().invoke(root, verify).exit_code == 0
    assert json.loads(CliRunner().invoke(root, [*verify, "--json"]).stdout) == {"problems": []}
    path = tmp_path / audit_files.AUDIT_FILE
    whole = path.read_bytes()
    for kept in range(5):
        path.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]))
        assert problems_of(disk) == [0]
    path.unlink()
    told = CliRunner().invoke(root, verify)
    assert told.exit_code == 1
    assert "line 5" in told.stdout
    (one,) = json.loads(CliRunner().invoke(root, [*verify, "--json"]).stdout)["problems"]
    assert (one["file"], one["line"]) == ("audit.jsonl", None)
    assert "line 5" in one["problem"]
    # What is written afterwards does not hide it.
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    log = AuditLog(disk, now_ns)
    assert "line 5" in log.lost
    log.write("ops", "create a topic", "more")
    log.close()
    assert problems_of(disk) == [3]


def test_a_crash_between_a_line_and_the_head_is_no_alarm(tmp_path, disk):
    log = written(disk, 3)
    log.close()
    head, path = tmp_path / audit_files.HEAD_FILE, tmp_path / audit_files.AUDIT_FILE
    before = head.read_bytes()
    log = AuditLog(disk, now_ns)
    log.write("ops", "delete a topic", "orders-0")
    log.submit("reader", "delete a topic", "orders-1", is_allowed=False)
    log.close()
    # The head of before, and a line that was being written.
    head.write_bytes(before)
    path.write_bytes(path.read_bytes() + b'{"at_ns":"17')
    assert problems_of(disk) == []
    log = AuditLog(disk, now_ns)
    assert log.lost == ""
    log.write("ops", "create a topic", "orders-4")
    log.close()
    assert problems_of(disk) == []
    assert len(lines_of(tmp_path)) == 6


def test_files_of_before_there_was_rotation_are_read(tmp_path, disk):
    """Lines without an address, and a head that knows one file only."""
    digest = b"2ff24be2a217039f314cfb59dfbdaf6b6c814937cbb7f10a5f89cef65e16e8ef"
    (tmp_path / audit_files.AUDIT_FILE).write_bytes(
        b'{"at_ns":"1700000000000000000","who":"ops","what":"create a topic","where":"orders","is_allowed":true,'
        b'"previous":"0000000000000000000000000000000000000000000000000000000000000000",'
        b'"hash":"%b"}\n' % digest
    )
    (tmp_path / audit_files.HEAD_FILE).write_bytes(b'{"size":255,"lines":1,"hash":"%b"}\n' % digest)
    log = AuditLog(disk, now_ns)
    assert log.lost == ""
    log.write("ops", "create a topic", "more", client="10.0.0.7")
    log.close()
    assert problems_of(disk) == []


async def test_a_server_says_that_lines_are_missing(tmp_path, caplog):
    with RealDisk(tmp_path, StorageConfig()) as disk:
        written(disk, 3).close()
    (tmp_path / audit_files.AUDIT_FILE).write_bytes(lines_of(tmp_path)[0] + b"\n")
    async with in_process(tmp_path):
        assert "lost lines" in caplog.text


async def test_a_server_says_that_a_line_was_changed(tmp_path, caplog):
    with RealDisk(tmp_path, StorageConfig()) as disk:
        written(disk, 3).close()
    path = tmp_path / audit_files.AUDIT_FILE
    path.write_bytes(path.read_bytes().replace(b'"is_allowed":true', b'"is_allowed":trve', 1))
    async with in_process(tmp_path), asyncio.timeout(10):
        await until(lambda: "line 1" in caplog.text)
    assert audit_files.AUDIT_FILE in caplog.text


@pytest.mark.parametrize("content", [None, b"", b"{"])
async def test_a_server_says_that_the_head_is_missing(tmp_path, caplog, content):
    """The next line makes a new one, which knows nothing of lines that went with the old one."""
    with RealDisk(tmp_path, StorageConfig()) as disk:
        written(disk, 3).close()
    head = tmp_path / audit_files.HEAD_FILE
    head.unlink()
    if content is not None:
        head.write_bytes(content)
    async with in_process(tmp_path):
        assert "audit.head is missing or damaged" in caplog.text


def test_what_failed_leaves_no_line(tmp_path, disk):
    log = written(disk, 2)
    with pytest.raises(OSError, match="no"), log.noted("ops", "create a topic", "never"):
        raise OSError("no")
    log.write("ops", "create a topic", "orders-2")
    log.close()
    assert problems_of(disk) == []
    assert len(lines_of(tmp_path)) == 3
