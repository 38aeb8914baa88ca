"""Keys of a server: none of them changes without its line in the audit log, and none is lost."""

import re
import shutil
import stat
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.api.keys import ListKeys
from penstock.cli.root import root
from penstock.server import audit, first_key
from penstock.sim import Call, Fault, Misbehaviour, SimDisk

from .rigs import in_process
from .test_full_disk import fill_up, small_disk  # noqa: F401 - a fixture
from .test_security import AUTH, bearer

BLOCK = 4096


def lines_of(data: Path) -> list[bytes]:
    return (data / audit.AUDIT_FILE).read_bytes().splitlines()


async def require_unchanged(broker, data: Path) -> None:
    """All changes of keys are refused for want of room, and leave neither a line nor another key."""
    admin = bearer((data / first_key.FIRST_KEY_FILE).read_text().strip())
    (key,) = broker.driver.execute(ListKeys())
    lines = lines_of(data)
    for call in (
        ("POST", "/admin/keys", {"name": "more", "role": "admin"}),
        ("POST", f"/admin/keys/{key.key_id}/rotate", {"grace": "0s"}),
        ("DELETE", f"/admin/keys/{key.key_id}"),
    ):
        refused = await broker.call(*call, headers=admin)
        assert (refused.status, refused.json["error"]) == (507, "NO_SPACE")
    assert broker.driver.execute(ListKeys()) == [key]
    assert lines_of(data) == lines
    assert (await broker.call("GET", "/topics", headers=admin)).status == 200


async def test_without_room_for_a_line_of_the_audit_log_no_key_changes(small_disk):  # noqa: F811 - the fixture
    async with in_process(small_disk, AUTH) as broker:
        path, log = small_disk / audit.AUDIT_FILE, broker.app.auth.audit
        for size in count():
            log.write("ops", "see health", "x" * size)
            # What is left of its last block is less than a line.
            if -path.stat().st_size % BLOCK < 200:
                break
        fill_up(small_disk / "ballast")
        await require_unchanged(broker, small_disk)


async def test_without_room_in_meta_no_key_changes(tmp_path):
    disk = SimDisk()
    async with in_process(tmp_path, AUTH, disk=disk) as broker:
        audit.AuditLog(tmp_path, lambda: 1).close()
        full = Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="meta/", times=99)
        disk.inject(full)
        await require_unchanged(broker, tmp_path)
        disk.faults.clear()
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        sent = {"name": "more", "role": "admin"}
        assert (await broker.call("POST", "/admin/keys", sent, headers=admin)).status == 201


async def test_the_first_key_is_not_lost_by_a_crash_before_its_file_was_written(tmp_path):
    disk, path = SimDisk(), tmp_path / "admin.key"
    async with in_process(tmp_path, AUTH, disk=disk) as broker:
        lost = bearer(path.read_text().strip())
        assert (await broker.call("GET", "/topics", headers=lost)).status == 200
    # As a crash leaves it between the two: meta has the key, the file does not.
    path.write_bytes(first_key._UNFINISHED)
    async with in_process(tmp_path, AUTH, disk=SimDisk(disk.tree())) as broker:
        admin = bearer(path.read_text().strip())
        assert (await broker.call("GET", "/topics", headers=admin)).status == 200
        assert (await broker.call("GET", "/topics", headers=lost)).status == 401
        disk = broker.disk
    # A file that was taken away, or emptied, is not missed.
    for content in (None, b""):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        async with in_process(tmp_path, AUTH, disk=SimDisk(disk.tree())) as broker:
            assert (await broker.call("GET", "/topics", headers=admin)).status == 200
            assert (path.exists(), path.exists() and path.read_bytes()) in {
                (False, False),
                (True, b""),
            }
            disk = broker.disk


def invoked(*arguments: object) -> str:
    done = CliRunner().invoke(root, ["keys", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_meta_is_for_its_owner_only(tmp_path):
    invoked("create", "ops", "--role", "admin", "--data-dir", tmp_path)
    assert stat.S_IMODE((tmp_path / "meta").stat().st_mode) == 0o700
    modes = {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "meta").iterdir()}
    assert modes == {0o600}


@pytest.mark.tier("test")
def test_a_process_that_finds_keys_in_a_file_says_what_to_do(tmp_path):
    (tmp_path / "keys.json").write_bytes(b'{"version":2,"keys":[]}')
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data-dir"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert re.search(r"keys\.json .*begin with an empty one", done.stderr)
    assert not (tmp_path / "meta").exists()


@pytest.mark.tier("test")
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
def test_a_change_is_synced_before_it_is_answered(tmp_path):
    """The line, then meta, then the head of the log."""
    traced = tmp_path / "trace"
    create = ["keys", "create", "ops", "--role", "admin", "--data-dir", str(tmp_path / "data")]
    calls = "trace=fsync,fdatasync,rename,renameat,renameat2"
    command = ["strace", "-f", "-y", "-e", calls, "-o", str(traced), sys.executable, "-m"]
    done = subprocess.run([*command, "penstock", *create], capture_output=True, text=True)
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    text = traced.read_text()
    line = text.index("audit.jsonl>")
    head = text.index("audit.head.", line)
    assert re.search(r"sync\(\d+<[^>]*/meta/\d+\.log>", text[line:head]), text
