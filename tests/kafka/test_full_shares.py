"""What a client of Kafka hears when the share of its key is full."""

from pathlib import Path

from penstock.api.principals import Principal, Role
from tests.kafka.in_process import KafkaClient, KafkaRig
from tests.kafka.test_classic_members import subscription
from tests.server.rigs import in_process

JOIN_GROUP, MEMBER_ID_REQUIRED = 11, 79
INIT_PRODUCER_ID, POLICY_VIOLATION, TRANSACTIONAL_ID_FORBIDDEN = 22, 44, 53


async def begin(client: KafkaClient, name: str) -> int:
    """The code that a new session of a producer with transactions is answered with."""
    asked = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    reply = await client.ask(INIT_PRODUCER_ID, 4, **asked, producer_id=-1, producer_epoch=-1)
    code: int = reply["error_code"]
    return code


async def test_a_key_has_so_many_producers_and_another_key_its_own(tmp_path: Path) -> None:
    settings = {("auth", "enabled"): True, ("limits", "producers_per_key_max"): 2}
    async with in_process(tmp_path, settings) as broker:
        rig = KafkaRig(broker)
        ann, ben, second_ann = (
            rig.client(Principal(name, Role.PRODUCER, key_id=key_id))
            for name, key_id in (("ann", "pk-1"), ("ben", "pk-2"), ("ann", "pk-3"))
        )
        for name, code in (("p", 0), ("q", 0), ("r", POLICY_VIOLATION), ("q", 0)):
            assert await begin(ann, name) == code, name
        assert await begin(ben, "r") == 0
        assert await begin(second_ann, "q") == TRANSACTIONAL_ID_FORBIDDEN


async def test_a_key_has_so_many_classic_groups_with_members(tmp_path: Path) -> None:
    settings = {("auth", "enabled"): True, ("limits", "groups_per_key_max"): 2}

    async def join(client: KafkaClient, group: str) -> int:
        protocols = [{"name": "range", "metadata": subscription("orders")}]
        times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
        reply = await client.ask(
            JOIN_GROUP,
            5,
            group_id=group,
            member_id="",
            group_instance_id=None,
            protocol_type="consumer",
            protocols=protocols,
            **times,
        )
        code: int = reply["error_code"]
        return code

    async with in_process(tmp_path, settings) as broker:
        rig = KafkaRig(broker)
        ann, ben = (
            rig.client(Principal(name, Role.CONSUMER, key_id=f"pk-{name}"))
            for name in ("ann", "ben")
        )
        for group in ("a", "b"):
            assert await join(ann, group) == MEMBER_ID_REQUIRED
        assert await join(ann, "c") == POLICY_VIOLATION
        assert await join(ann, "a") == MEMBER_ID_REQUIRED
        assert await join(ben, "c") == MEMBER_ID_REQUIRED
