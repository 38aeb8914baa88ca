"""Keys of a server: made, rotated, revoked; none changes without its line in the audit log, and none is lost."""

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
from penstock.api.principals import Role
from penstock.cli.root import root
from penstock.server import audit_files, first_key
from penstock.sim import Call, Fault, Misbehaviour, SimDisk

from .rigs import in_process
from .test_full_disk import fill_up, small_disk  # noqa: F401 - a fixture
from .test_security import AUTH, bearer

BLOCK = 4096


def lines_of(data: Path) -> list[bytes]:
    return (data / audit_files.AUDIT_FILE).read_bytes().splitlines()


async def require_unchanged(broker, data: Path) -> None:
    """All changes of keys are refused for want of room, and leave neither a line nor another key."""
    admin = bearer((data / first_key.FIRST_KEY_FILE).read_text().strip())
    (key,) = broker.driver.execute(ListKeys())
    lines = lines_of(data)
    for call in (
        ("POST", "/admin/keys", {"name": "more", "role": "admin"}),
        ("POST", f"/admin/keys/{key.key_id}/rotate", {"grace": "0s"}),
        ("DELETE", f"/admin/keys/{key.key_id}?force=true"),
    ):
        refused = await broker.call(*call, headers=admin)
        assert (refused.status, refused.json["error"]) == (507, "NO_SPACE")
    assert broker.driver.execute(ListKeys()) == [key]
    assert lines_of(data) == lines
    assert (await broker.call("GET", "/topics", headers=admin)).status == 200


async def test_without_room_for_a_line_of_the_audit_log_no_key_changes(small_disk):  # noqa: F811 - the fixture
    async with in_process(small_disk, AUTH) as broker:
        path, log = small_disk / audit_files.AUDIT_FILE, broker.app.auth.audit
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
        broker.app.auth.audit.write("ops", "see health", "x")
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


async def test_keys_are_shown_once_rotated_expired_and_revoked(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        first = tmp_path / "admin.key"
        admin = bearer(first.read_text().strip())
        assert stat.S_IMODE(first.stat().st_mode) == 0o600
        sent = {"name": "shop", "role": "producer", "prefixes": ["orders"], "expires_in": "1h"}
        made = await broker.call("POST", "/admin/keys", sent, headers=admin)
        key, key_id = made.json["key"], made.json["key_id"]
        assert made.status == 201
        listed = await broker.call("GET", "/admin/keys", headers=admin)
        assert key.partition(".")[2] not in listed.body.decode()
        stored = b"".join(broker.disk.tree().files.values())
        assert (b"shop" in stored, key.partition(".")[2].encode() in stored) == (True, False)

        async def works(text: str) -> bool:
            return (await broker.call("GET", "/topics", headers={"x-api-key": text})).status == 200

        assert await works(key)
        assert not await works(key[:-1])
        target = f"/admin/keys/{key_id}/rotate"
        refused = await broker.call("POST", target, {"grace": 30}, headers=admin)
        assert (refused.status, "got 30 ms" in refused.json["message"]) == (400, True)
        assert await works(key)
        second = (await broker.call("POST", target, {"grace": "10m"}, headers=admin)).json["key"]
        assert [await works(key), await works(second)] == [True, True]
        broker.clock.advance("11m")
        assert [await works(key), await works(second)] == [False, True]
        broker.clock.advance("1h")
        assert not await works(second)
        assert (await broker.call("DELETE", f"/admin/keys/{key_id}", headers=admin)).status == 204
        assert (await broker.call("DELETE", f"/admin/keys/{key_id}", headers=admin)).status == 404
        (last,) = broker.driver.execute(ListKeys())
        refused = await broker.call("DELETE", f"/admin/keys/{last.key_id}", headers=admin)
        assert (refused.status, refused.json["error"]) == (409, "LAST_ADMINISTRATOR")


async def test_a_rotation_does_not_prolong_a_secret_that_expires(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        sent = {"name": "shop", "role": "producer", "expires_in": "1h"}
        made = (await broker.call("POST", "/admin/keys", sent, headers=admin)).json
        broker.clock.advance("50m")
        target = f"/admin/keys/{made['key_id']}/rotate"
        rotated = (await broker.call("POST", target, {"grace": "24h"}, headers=admin)).json

        async def works() -> list[bool]:
            keys = [bearer(one["key"]) for one in (made, rotated)]
            replies = [await broker.call("GET", "/topics", headers=one) for one in keys]
            return [one.status == 200 for one in replies]

        broker.clock.advance("9m")
        assert await works() == [True, True]
        broker.clock.advance("2m")
        assert await works() == [False, True]
        # The new one lasts as long as the old one did.
        broker.clock.advance("48m")
        assert await works() == [False, True]
        broker.clock.advance("2m")
        assert await works() == [False, False]


async def test_an_admin_with_prefixes_reaches_only_keys_within_them(tmp_path):
    """Each route of keys; those of others are as unknown as those that never were."""
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        team = broker.key("team", Role.ADMIN, "orders", "bills")
        inside = broker.key("inside", Role.CONSUMER, "orders.eu").key
        outside = {
            "unlimited": (),
            "foreign": ("invoices",),
            "wider": ("order",),
            "partly": ("orders", "invoices"),
        }
        others = [
            broker.key(name, Role.READONLY, *prefixes).key for name, prefixes in outside.items()
        ]
        kept = broker.driver.execute(ListKeys())

        async def call(*request):
            return await broker.call(*request, headers=bearer(team.text))

        for prefixes in outside.values():
            for role in Role:
                sent = {"name": "new", "role": role.value, "prefixes": list(prefixes)}
                refused = await call("POST", "/admin/keys", sent)
                assert (refused.status, refused.json["error"]) == (403, "PERMISSION_DENIED")
        for key_id in [one.key_id for one in others] + ["pk-000000000000"]:
            for request in (
                ("POST", f"/admin/keys/{key_id}/rotate", {"grace": "0s"}),
                ("DELETE", f"/admin/keys/{key_id}"),
            ):
                refused = await call(*request)
                expected = {"error": "NOT_FOUND", "message": f"there is no key {key_id}"}
                assert {**refused.json, **expected} == refused.json
        assert broker.driver.execute(ListKeys()) == kept
        listed = (await call("GET", "/admin/keys")).json["keys"]
        assert {one["name"] for one in listed} == {"team", "inside"}
        everything = await broker.call("GET", "/admin/keys", headers=admin)
        assert len(everything.json["keys"]) == len(others) + 3
        sent = {"name": "new", "role": "admin", "prefixes": ["orders", "bills.eu"]}
        made = await call("POST", "/admin/keys", sent)
        assert made.status == 201
        assert (await call("POST", f"/admin/keys/{inside.key_id}/rotate", {})).status == 200
        for key_id in (made.json["key_id"], inside.key_id, team.key.key_id):
            assert (await call("DELETE", f"/admin/keys/{key_id}")).status == 204
        assert (await call("GET", "/admin/keys")).status == 401


async def test_a_name_is_for_one_key(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        sent = {"name": "shop", "role": "producer"}
        made = await broker.call("POST", "/admin/keys", sent, headers=admin)
        assert made.status == 201
        again = await broker.call("POST", "/admin/keys", {**sent, "role": "admin"}, headers=admin)
        assert (again.status, again.json["error"]) == (409, "ALREADY_EXISTS")
        target = f"/admin/keys/{made.json['key_id']}"
        assert (await broker.call("DELETE", target, headers=admin)).status == 204
        assert (await broker.call("POST", "/admin/keys", sent, headers=admin)).status == 201
