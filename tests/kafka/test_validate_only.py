"""Requests of administrators that are only to be checked: refused as they would be, and nothing is changed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.api.principals import LOCAL, Principal, Role
from tests.kafka.in_process import KafkaRig
from tests.server.rigs import in_process

CREATE_TOPICS, CREATE_PARTITIONS, ALTER_CONFIGS = 19, 37, 44
TOPIC, SET = 2, 0
FORBIDDEN, INVALID_CONFIG, INVALID_REQUEST, INVALID_TOPIC = 29, 40, 42, 17
READER = Principal("reader", Role.READONLY)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[KafkaRig]:
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        yield KafkaRig(broker)


def settings_of(values: dict[str, str], **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "value": value, **more} for name, value in values.items()]


@pytest.mark.parametrize("is_only_checked", [True, False])
@pytest.mark.parametrize(
    ("principal", "values", "code"),
    [
        (LOCAL, {"cleanup.policy": "bogus"}, INVALID_CONFIG),
        (LOCAL, {"retention.bytes": "-7"}, INVALID_CONFIG),
        (READER, {"retention.ms": "7200000"}, FORBIDDEN),
        (LOCAL, {"retention.ms": "7200000"}, 0),
    ],
)
async def test_a_change_of_settings_is_refused_as_when_it_is_made(
    rig: KafkaRig, principal: Principal, values: dict[str, str], code: int, is_only_checked: bool
) -> None:
    configs = settings_of(values, config_operation=SET)
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": configs}
    answer = await rig.client(principal).ask(
        ALTER_CONFIGS, 1, resources=[resource], validate_only=is_only_checked
    )
    assert answer["responses"][0]["error_code"] == code


@pytest.mark.parametrize("is_only_checked", [True, False])
@pytest.mark.parametrize(
    ("principal", "name", "count", "values", "code"),
    [
        (LOCAL, "new", 1_000_000_000, {}, INVALID_REQUEST),
        (LOCAL, "new", 1, {"cleanup.policy": "bogus"}, INVALID_CONFIG),
        (LOCAL, "__new", 1, {}, INVALID_REQUEST),
        (LOCAL, "no name", 1, {}, INVALID_TOPIC),
        (READER, "new", 1, {}, FORBIDDEN),
        (LOCAL, "new", -1, {}, 0),
    ],
)
async def test_a_new_topic_is_refused_as_when_it_is_made(
    rig: KafkaRig,
    principal: Principal,
    name: str,
    count: int,
    values: dict[str, str],
    code: int,
    is_only_checked: bool,
) -> None:
    topic = {
        "name": name,
        "num_partitions": count,
        "replication_factor": 1,
        "assignments": [],
        "configs": settings_of(values),
    }
    asked = {"topics": [topic], "timeout_ms": 1000, "validate_only": is_only_checked}
    answer = await rig.client(principal).ask(CREATE_TOPICS, 7, **asked)
    assert answer["topics"][0]["error_code"] == code


@pytest.mark.parametrize("is_only_checked", [True, False])
@pytest.mark.parametrize(
    ("principal", "count", "code"),
    [(LOCAL, 100_000_000, INVALID_REQUEST), (READER, 5, FORBIDDEN), (LOCAL, 5, 0)],
)
async def test_more_partitions_are_refused_as_when_they_are_made(
    rig: KafkaRig, principal: Principal, count: int, code: int, is_only_checked: bool
) -> None:
    grown = {"name": "orders", "count": count, "assignments": None}
    asked = {"topics": [grown], "timeout_ms": 1000, "validate_only": is_only_checked}
    answer = await rig.client(principal).ask(CREATE_PARTITIONS, 3, **asked)
    assert answer["results"][0]["error_code"] == code


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("retention.ms", "7d", "retention.ms must be a whole number, got '7d'"),
        (
            "compression.type",
            "gzip",
            "compression.type must be one of producer, uncompressed, lz4, zstd, got 'gzip'",
        ),
        (
            "penstock.keep_unread",
            "maybe",
            "penstock.keep_unread must be true or false, got 'maybe'",
        ),
        (
            "min.insync.replicas",
            "2",
            "min.insync.replicas must be 1, which cannot be changed, got '2'",
        ),
    ],
)
async def test_a_refused_setting_says_what_would_be_right(
    rig: KafkaRig, name: str, value: str, said: str
) -> None:
    configs = settings_of({name: value}, config_operation=SET)
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": configs}
    answer = await rig.client(LOCAL).ask(
        ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    )
    (found,) = answer["responses"]
    assert (found["error_code"], found["error_message"]) == (INVALID_CONFIG, said)
