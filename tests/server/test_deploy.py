"""Files for operators: every metric they name exists, every setting they set is one."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.api.health import Sample
from penstock.cli.exits import Exit
from penstock.observability.prometheus import Histogram, render
from penstock.observability.table import METRICS, MetricKind
from penstock.server.http.routing import Router
from penstock.server.http.table import ROUTES
from penstock.server.settings_sources import read_settings

from .rigs import in_process

DEPLOY = Path(__file__).parents[2] / "deploy"
BOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
NAME = re.compile(r"\b(?:penstock|process)_[a-z_]+\b")


def known_names() -> set[str]:
    names = set(METRICS)
    for name, metric in METRICS.items():
        if metric.kind is MetricKind.HISTOGRAM:
            names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return names


@pytest.mark.parametrize(("file", "least"), [("dashboard.json", 20), ("pipelines.json", 10)])
def test_every_metric_of_a_dashboard_exists(file, least):
    board = json.loads((DEPLOY / "grafana" / file).read_text())
    asked = [one["expr"] for panel in board["panels"] for one in panel["targets"]]
    assert len(asked) > least
    assert set(NAME.findall(" ".join(asked))) <= known_names()


def test_every_metric_of_the_alerts_exists():
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    assert all(rule["annotations"]["summary"] for rule in rules)
    asked = " ".join(rule["expr"] for rule in rules)
    assert set(NAME.findall(asked)) <= known_names()


async def test_a_fresh_broker_has_every_name_of_dashboards_and_alerts(tmp_path):
    """And the counters among them with zero, where their labels are known."""
    files = (*BOARDS, DEPLOY / "alerts.yml")
    asked = set(NAME.findall(" ".join(file.read_text() for file in files))) & known_names()
    async with in_process(tmp_path) as broker:
        text = (await broker.call("GET", "/metrics")).body.decode()
        told = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
        told |= {f"{name}_{part}" for name in told for part in ("bucket", "sum", "count")}
        assert asked <= told
        for line in (
            'penstock_answers_total{answer="nack"} 0',
            'penstock_publish_errors_total{code="NO_SPACE"} 0',
            'penstock_binary_refused_total{reason="frame"} 0',
            "penstock_publish_messages_total 0",
        ):
            assert f"\n{line}\n" in text
        await broker.topic(max_backlog_messages=1)
        await broker.publish("1")
        await broker.call("POST", "/topics/orders/messages", {"messages": [{"value": "2"}]})
        text = (await broker.call("GET", "/metrics")).body.decode()
        (line,) = re.findall(
            r'penstock_publish_errors_total\{code="RESOURCE_EXHAUSTED"\} (\d+)', text
        )
        assert int(line) == 1


async def test_what_is_served_is_what_the_table_says(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(max_retries=0, validation="warn")
        await broker.publish("1")
        (one,) = await broker.poll()
        await broker.call("POST", "/messages/nack", {"receipt_handle": one["receipt_handle"]})
        await broker.call("POST", "/topics/none/messages", {"messages": [{"value": "1"}]})
        later = {"messages": [{"value": "1", "delay": "1h"}]}
        await broker.call("POST", "/topics/orders/messages", later)
        await broker.call("POST", "/groups/a/join", {"topics": ["orders"]})
        session = (await broker.call("POST", "/producers/init", {"transactional_id": "p"})).json
        staged = {**session, "topic": "orders", "value": "1"}
        await broker.call("POST", "/transactions/publish", staged)
        report = {"kind": "archive", "state": "running", "topics": ["orders"]}
        await broker.call("PUT", "/pipelines/lake", report)
        broker.app.binary.count("PublishBatch")
        broker.app.binary.refuse("connections")
        broker.settle()
        text = (await broker.call("GET", "/metrics")).body.decode()
        assert set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) == set(METRICS)
        lines = set(re.findall(r"^(\w+)", text, re.MULTILINE))
        served = {re.sub("_(bucket|sum|count)$", "", one) for one in lines - METRICS.keys()}
        served |= lines & METRICS.keys()
        # Without a certificate, and without a collector of spans, there is nothing to count.
        elsewhere = {"penstock_tls_expires_seconds", "penstock_otlp_spans_total"}
        # Without a standby either.
        elsewhere |= {one for one in METRICS if one.startswith("penstock_replication_")}
        assert set(METRICS) - elsewhere <= served <= set(METRICS)
        assert 'penstock_group_dead_total{group="g",topic="orders"} 1' in text
        assert 'penstock_publish_errors_total{code="NOT_FOUND"} 1' in text


def test_the_text_format():
    text = render(
        [
            Sample("penstock_publish_errors_total", {"code": 'a"b\\c\nd'}, 3),
            Histogram("penstock_fsync_seconds", {}, (0.5, 1.0), [1, 0, 2], 7.25),
        ]
    ).decode()
    assert (
        "# HELP penstock_publish_errors_total Messages, and batches as a whole, that were refused, by code.\n"
        "# TYPE penstock_publish_errors_total counter\n"
        'penstock_publish_errors_total{code="a\\"b\\\\c\\nd"} 3\n'
    ) in text
    assert (
        "# HELP penstock_fsync_seconds How long a sync of everything takes.\n"
        "# TYPE penstock_fsync_seconds histogram\n"
        'penstock_fsync_seconds_bucket{le="0.5"} 1\n'
        'penstock_fsync_seconds_bucket{le="1"} 1\n'
        'penstock_fsync_seconds_bucket{le="+Inf"} 3\n'
        "penstock_fsync_seconds_sum 7.25\n"
        "penstock_fsync_seconds_count 3\n"
    ) in text


def test_settings_of_the_files_are_good():
    read_settings((DEPLOY / "penstock.yaml").read_text())
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    unit = (DEPLOY / "penstock.service").read_text()
    found = dict(re.findall(r"(PENSTOCK_[A-Z_]+__[A-Z_]+)=(\S+)", f"{dockerfile}\n{unit}"))
    assert len(found) >= 3
    read_settings("", environment=found)


def test_compose_names_files_that_are_there():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    mounted = [
        one.split(":")[0] for service in services.values() for one in service.get("volumes", ())
    ]
    files = [one for one in mounted if one.startswith("./")]
    assert len(files) >= 4
    assert all((DEPLOY / one).exists() for one in files)
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert config["rule_files"] == ["alerts.yml"]


def test_grafana_finds_its_source_and_its_dashboards():
    provisioning = DEPLOY / "grafana" / "provisioning"
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())[
        "datasources"
    ]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "penstock.yaml").read_text())[
        "providers"
    ]
    mounts = dict(one.split(":")[:2] for one in services["grafana"]["volumes"])
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    assert source["url"] == "http://prometheus:9090"
    boards = {file: json.loads(file.read_text()) for file in BOARDS}
    assert len({board["uid"] for board in boards.values()}) == len(boards) == 2
    for file, board in boards.items():
        assert mounts[f"./grafana/{file.name}"].startswith(f"{provider['options']['path']}/")
        (variable,) = board["templating"]["list"]
        assert (variable["type"], variable["query"]) == ("datasource", source["type"])
        used = {panel["datasource"]["uid"] for panel in board["panels"]}
        assert used == {"${" + variable["name"] + "}"}


def test_what_the_image_copies_and_asks_for_is_there():
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE)
    assert all((DEPLOY.parent / one).exists() for line in copied for one in line.split())
    (probed,) = re.findall(r"'GET', '(/\w+)'", dockerfile)
    assert Router(ROUTES).find("GET", probed)[0].is_open
    assert (
        re.search(r"--uid (\d+)", dockerfile)[1]
        == re.search(r"^USER (\d+)", dockerfile, re.MULTILINE)[1]
    )


def test_the_unit_does_not_try_again_what_only_an_operator_can_mend():
    unit = (DEPLOY / "penstock.service").read_text()
    (codes,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert set(map(int, codes.split())) == {Exit.FOUND_PROBLEMS, Exit.USAGE, Exit.REFUSED}
    # systemd looks at the code of ExecStart alone.
    assert "\nExecStartPre=" not in unit


def test_the_unit_bounds_memory_and_threads():
    unit = (DEPLOY / "penstock.service").read_text()
    for bound in ("MemoryMax", "TasksMax", "LimitNOFILE"):
        assert re.search(rf"^{bound}=[0-9]+%?$", unit, re.MULTILINE), bound


@pytest.mark.tier("test")
def test_commands_and_flags_of_the_unit_exist():
    commands = re.findall(r"=/usr/bin/penstock (.*)", (DEPLOY / "penstock.service").read_text())
    assert commands
    for words in map(str.split, commands):
        flags = {word for word in words if word.startswith("--")}
        command = [word for word in words if not word.startswith(("-", "/"))]
        shown = subprocess.run(
            [sys.executable, "-m", "penstock", *command, "--help"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert flags <= set(re.findall(r"--[a-z-]+", shown.stdout))
