"""`penstock keys`, `penstock config` and `penstock serve`, as far as they need no broker that runs."""

import json
import shutil
from typing import NamedTuple

import pytest

from penstock import Broker
from penstock.cli import exits, standby
from penstock.cli.exits import Exit
from penstock.cli.root import root
from penstock.runtime import fatal
from penstock.server.serving import Serving


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def penstock(capsys, monkeypatch):
    def run(*words: str, **environment: str) -> Done:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = exits.run(root, words)
        for name in environment:
            monkeypatch.delenv(name)
        return Done(code, *capsys.readouterr())

    return run


def test_the_first_key_is_made_on_the_data_directory(tmp_path, penstock):
    data = str(tmp_path / "data")
    words = ("--role", "admin", "--prefix", "orders", "--json", "--data-dir", data)
    made = json.loads(penstock("keys", "create", "ops", *words).stdout)
    assert made["key"].startswith(f"{made['key_id']}.")
    _titles, listed = penstock("keys", "list", "--data-dir", data).stdout.splitlines()
    assert listed.split() == [made["key_id"], "admin", "ops", "orders*", "-"]
    rotated = penstock("keys", "rotate", made["key_id"], "--data-dir", data)
    assert rotated.stdout.strip() != made["key"]
    assert penstock("keys", "revoke", made["key_id"], "--data-dir", data).returncode == 0
    assert penstock("keys", "revoke", made["key_id"], "--data-dir", data).returncode == 3
    assert penstock("keys", "list").returncode == 2


@pytest.mark.parametrize(("said", "secrets"), [("59500ms", 2), ("0s", 1)])
def test_the_secret_before_holds_for_its_grace_on_the_data_directory(
    tmp_path, penstock, said, secrets
):
    words = ("--json", "--data-dir", str(tmp_path / "data"))
    made = json.loads(penstock("keys", "create", "ops", "--role", "admin", *words).stdout)
    assert penstock("keys", "rotate", made["key_id"], "--grace", said, *words).returncode == 0
    key = json.loads(penstock("keys", "list", *words).stdout)
    assert key["secrets"] == secrets


def test_config_check_prints_every_problem(tmp_path, penstock):
    file = tmp_path / "p.yaml"
    file.write_text("broker: {prot: 1, port: -1}\n")
    found = penstock("config", "check", "--config", str(file), PENSTOCK_LOG__LEVEL="loud")
    assert found.returncode == 1
    assert len(found.stdout.splitlines()) == 3
    file.write_text("broker: {port: 1}\n")
    good = penstock("config", "check", "--config", str(file), PENSTOCK_BROKER_PORT="2")
    assert (good.stdout, good.returncode) == ("good\n", 0)
    assert "PENSTOCK_BROKER_PORT is no setting" in good.stderr
    shown = json.loads(penstock("config", "show", "--json", "--config", str(file)).stdout)
    assert shown["broker"]["port"] == 1
    file.write_text("tls: {cert_file: no.pem, key_file: no.key}\n")
    found = penstock("config", "check", "--config", str(file))
    assert found.stdout == "tls.cert_file must be a file that exists, got 'no.pem'\n"
    assert found.returncode == 1


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("storage.retention_check_ms=5", 3, "storage.retention_check_ms must be in 100..604800000"),
        ("storage.segment_age_ms=old", 3, "storage.segment_age_ms must look like"),
        ("storage.segment_ages_ms=1", 3, "did you mean storage.segment_age_ms?"),
        ("retention_check_ms=5", 2, "SECTION.KEY=VALUE"),
        ("storage.retention_check_ms", 2, "SECTION.KEY=VALUE"),
    ],
)
def test_serve_takes_any_setting_and_refuses_a_wrong_one(tmp_path, run, word, code, said):
    done = run("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--set", word)
    assert done.code == code
    assert said in done.err
    assert not (tmp_path / "data").exists()


def test_serve_refuses_an_open_door_and_says_what_to_do(tmp_path, penstock):
    words = ("serve", "--host", "0.0.0.0", "--data-dir", str(tmp_path / "data"))
    refused = penstock(*words)
    assert refused.returncode == 3
    assert "auth.enabled: true" in refused.stderr
    assert not (tmp_path / "data").exists()


STANDBY = {"node": 2, "is_in_sync": True, "lag_bytes": 2048, "lag_s": 0.25, "sent_bytes": 3 << 20}
REPORT = {"node": 1, "role": "leading", "epoch": 1026, "heard_ns": 0, "in_sync": 3}


@pytest.mark.parametrize("words", [("standby", "status"), ("promote",)])
def test_standbys_have_a_line_each_and_epochs_are_as_in_the_log(penstock, monkeypatch, words):
    late = {**STANDBY, "node": 3, "is_in_sync": False, "lag_s": 90.0}
    report = {**REPORT, "standbys": [STANDBY, late]}
    monkeypatch.setattr(standby, "operation", lambda *_, **__: report)
    assert penstock(*words).stdout.splitlines() == [
        "node: 1",
        "role: leading",
        "epoch: 1026",
        "heard: -",
        "in sync: 3",
        "standby 2: in sync, 2.0 KiB and 0.2s behind, 3.0 MiB sent",
        "standby 3: catching up, 2.0 KiB and 1.5m behind, 3.0 MiB sent",
    ]
    assert json.loads(penstock(*words, "--json").stdout) == report


def test_a_leader_without_a_standby_says_that_there_is_none(penstock, monkeypatch):
    report = {**REPORT, "heard_ns": 1_700_000_000_000_000_000, "standbys": []}
    monkeypatch.setattr(standby, "operation", lambda *_, **__: report)
    shown = penstock("standby", "status").stdout.splitlines()
    assert shown[-3:] == ["heard: 2023-11-14T22:13:20.000000000Z", "in sync: 3", "standbys: -"]


def test_serve_ends_with_a_code_after_which_no_supervisor_should_try_again(tmp_path, run):
    none = str(tmp_path / "none.yaml")
    refused = run("serve", "--config", none)
    assert refused.code == Exit.REFUSED
    assert f"{none}: No such file" in refused.err
    assert run("config", "check", "--config", none).code == Exit.FOUND_PROBLEMS
    data = tmp_path / "data"
    with Broker(data) as broker:
        broker.create_topic("orders")
    shutil.rmtree(data / "meta")
    words = ("serve", "--port", "0", "--binary-port", "0", "--data-dir", str(data))
    damaged = run(*words)
    assert damaged.code == Exit.FOUND_PROBLEMS
    assert f"data directory {data}: " in damaged.err


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_serve_that_fails_by_itself_has_not_the_code_of_damage(tmp_path, run, monkeypatch, error):
    ended = []

    def fail(*_) -> None:
        raise error

    monkeypatch.setattr(Serving, "run", fail)
    monkeypatch.setattr(fatal, "exit_process", ended.append)
    with pytest.raises(type(error)):
        run("serve", "--data-dir", str(tmp_path / "data"))
    assert ended == [error]
