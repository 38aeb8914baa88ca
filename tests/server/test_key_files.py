"""Files of keys and of the audit log: whole or untouched, and known for what they are when they are not."""

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from penstock.api.principals import Role
from penstock.cli.root import root
from penstock.errors import DamagedFile
from penstock.server import audit
from penstock.server.audit import AuditLog
from penstock.server.keys import KeyRing

from .rigs import in_process
from .test_full_disk import fill_up, small_disk  # noqa: F401 - a fixture
from .test_security import AUTH, bearer

BLOCK = 4096


def now_ns() -> int:
    return 1_700_000_000_000_000_000


def lines_of(data) -> list[bytes]:
    return (data / audit.AUDIT_FILE).read_bytes().splitlines()


def problems_of(data) -> list[int]:
    return [one.line for one in audit.verify(data / audit.AUDIT_FILE)]


@pytest.mark.parametrize("free_bytes", [0, BLOCK], ids=["none", "one block"])
async def test_without_room_for_the_keys_nothing_changes(small_disk, free_bytes):  # noqa: F811 - the fixture
    async with in_process(small_disk, AUTH) as broker:
        admin = bearer((small_disk / "admin.key").read_text().strip())
        # Their file takes more than a block, so that a write of it can end in the middle.
        for number in range(20):
            sent = {"name": f"app-{number}", "role": "producer"}
            made = await broker.call("POST", "/admin/keys", sent, headers=admin)
            assert made.status == 201
        before, lines = (small_disk / "keys.json").read_bytes(), lines_of(small_disk)
        ballast = small_disk / "ballast"
        fill_up(ballast)
        os.truncate(ballast, ballast.stat().st_size - free_bytes)
        target = f"/admin/keys/{made.json['key_id']}"
        for call in (
            ("POST", "/admin/keys", {"name": "more", "role": "admin"}),
            ("POST", f"{target}/rotate", {"grace": "0s"}),
            ("DELETE", target),
        ):
            refused = await broker.call(*call, headers=admin)
            assert (refused.status, refused.json["error"]) == (507, "NO_SPACE")
        assert (small_disk / "keys.json").read_bytes() == before
        assert lines_of(small_disk) == lines
        app = bearer(made.json["key"])
        assert (await broker.call("GET", "/topics", headers=app)).status == 200
        ballast.unlink()
    async with in_process(small_disk, AUTH) as broker:
        assert (await broker.call("GET", "/topics", headers=app)).status == 200
        listed = await broker.call("GET", "/admin/keys", headers=admin)
        assert len(listed.json["keys"]) == 21
        assert (await broker.call("DELETE", target, headers=admin)).status == 204
    assert problems_of(small_disk) == []
    assert not [one.name for one in small_disk.iterdir() if one.name.endswith(".new")]


async def test_a_server_without_the_keys_that_it_had_does_not_start(tmp_path):
    async with in_process(tmp_path, AUTH):
        pass
    kept = (tmp_path / "keys.json").read_bytes()
    (tmp_path / "keys.json").unlink()
    (tmp_path / "admin.key").unlink()
    for settings in (AUTH, {}):
        with pytest.raises(DamagedFile, match=r"keys\.json.*keys\.made"):
            async with in_process(tmp_path, settings):
                pass
    assert not (tmp_path / "admin.key").exists()
    # Of a directory from before there was such a mark, or from a crash: made anew.
    (tmp_path / "keys.json").write_bytes(kept)
    (tmp_path / "keys.made").unlink()
    async with in_process(tmp_path, AUTH):
        assert (tmp_path / "keys.made").exists()
    assert not (tmp_path / "admin.key").exists()


@pytest.mark.tier("test")
def test_a_process_that_finds_its_keys_missing_says_what_to_do(tmp_path):
    create = ["keys", "create", "ops", "--role", "admin", "--data-dir", str(tmp_path)]
    made = CliRunner().invoke(root, create)
    assert made.exit_code == 0, made.output
    (tmp_path / "keys.json").unlink()
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data-dir"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "keys.json" in done.stderr
    assert "keys.made" in done.stderr


def test_a_file_of_keys_that_is_not_as_it_was_written_is_refused(tmp_path, effort):
    ring = KeyRing(tmp_path, now_ns)
    ring.create("ops", Role.ADMIN)
    ring.create("shop", Role.PRODUCER, prefixes=("orders",), ttl_s=60)
    path = tmp_path / "keys.json"
    whole = path.read_bytes()
    step = effort(check=41, test=11, torture=1)
    damaged = [whole[:size] for size in range(0, len(whole), step)]
    for place in range(0, len(whole), step):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            damaged.append(bytes(flipped))
    damaged += [whole + b"\n", b"\0" * len(whole), b'{"version":1,"keys":[]}']
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DamagedFile, match=r"keys\.json.*put a copy of it back"):
            KeyRing(tmp_path, now_ns)
    path.write_bytes(whole)
    assert [one.name for one in KeyRing(tmp_path, now_ns).all()] == ["ops", "shop"]


def test_a_reload_without_the_file_keeps_the_keys(tmp_path):
    ring = KeyRing(tmp_path, now_ns)
    _, text = ring.create("ops", Role.ADMIN)
    (tmp_path / "keys.json").unlink()
    with pytest.raises(DamagedFile):
        ring.reload()
    assert ring.find(text) is not None


def written(data, count: int) -> AuditLog:
    log = AuditLog(data, now_ns)
    for number in range(count):
        log.write("ops", "create a topic", f"orders-{number}")
    return log


def test_lines_removed_at_the_end_show(tmp_path):
    written(tmp_path, 5).close()
    verify = ["audit", "verify", str(tmp_path)]
    assert CliRunner().invoke(root, verify).exit_code == 0
    path = tmp_path / audit.AUDIT_FILE
    whole = path.read_bytes()
    for kept in range(5):
        path.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]))
        assert problems_of(tmp_path) == [0]
    path.unlink()
    told = CliRunner().invoke(root, verify)
    assert told.exit_code == 1
    assert "line 5" in told.stdout
    # What is written afterwards does not hide it.
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    log = AuditLog(tmp_path, now_ns)
    assert "line 5" in log.lost
    log.write("ops", "create a topic", "more")
    log.close()
    assert problems_of(tmp_path) == [3]


def test_a_crash_between_a_line_and_the_head_is_no_alarm(tmp_path):
    log = written(tmp_path, 3)
    head, path = tmp_path / audit.HEAD_FILE, tmp_path / audit.AUDIT_FILE
    before = head.read_bytes()
    log.write("ops", "delete a topic", "orders-0")
    log.write("reader", "delete a topic", "orders-1", is_allowed=False)
    log.close()
    # The head of before, and a line that was being written.
    head.write_bytes(before)
    path.write_bytes(path.read_bytes() + b'{"at_ns":"17')
    assert problems_of(tmp_path) == []
    log = AuditLog(tmp_path, now_ns)
    assert log.lost == ""
    log.write("ops", "create a topic", "orders-4")
    log.close()
    assert problems_of(tmp_path) == []
    assert len(lines_of(tmp_path)) == 6


async def test_a_server_says_that_lines_are_missing(tmp_path, caplog):
    written(tmp_path, 3).close()
    (tmp_path / audit.AUDIT_FILE).write_bytes(lines_of(tmp_path)[0] + b"\n")
    async with in_process(tmp_path):
        assert "lost lines" in caplog.text


@pytest.mark.parametrize("content", [None, b"", b"{"])
async def test_a_server_says_that_the_head_is_missing(tmp_path, caplog, content):
    """The next line makes a new one, which knows nothing of lines that went with the old one."""
    written(tmp_path, 3).close()
    head = tmp_path / audit.HEAD_FILE
    head.unlink()
    if content is not None:
        head.write_bytes(content)
    async with in_process(tmp_path):
        assert "audit.head is missing or damaged" in caplog.text


def test_what_failed_leaves_no_line(tmp_path):
    log = written(tmp_path, 2)
    with pytest.raises(OSError, match="no"), log.noted("ops", "create a topic", "never"):
        raise OSError("no")
    log.write("ops", "create a topic", "orders-2")
    log.close()
    assert problems_of(tmp_path) == []
    assert len(lines_of(tmp_path)) == 3


@pytest.mark.tier("test")
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
def test_a_change_is_synced_before_it_is_answered(tmp_path):
    """The line, then the keys, then the head of the log."""
    traced = tmp_path / "trace"
    create = ["keys", "create", "ops", "--role", "admin", "--data-dir", str(tmp_path / "data")]
    calls = "trace=fsync,rename,renameat,renameat2"
    command = ["strace", "-f", "-y", "-e", calls, "-o", str(traced), sys.executable, "-m"]
    done = subprocess.run([*command, "penstock", *create], capture_output=True, text=True)
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    text = traced.read_text()
    steps = [
        text.index("audit.jsonl>"),
        text.index("keys.json."),
        text.index('keys.json"'),
        text.index("audit.head."),
        text.index('audit.head"'),
    ]
    assert steps == sorted(steps), text
