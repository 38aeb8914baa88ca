"""What one key may fill, over the wire: its own share is full for it alone, and what it has stays over a restart."""

import pytest

from penstock.api.principals import Role
from penstock.api.topics import CreateTopic
from penstock.sim import SimDisk

from .rigs import in_process
from .test_security import bearer

LIMITS = {
    ("auth", "enabled"): True,
    ("limits", "query_starts_per_key_max"): 2,
    ("limits", "producers_per_key_max"): 2,
    ("limits", "commit_names_per_key_max"): 2,
}
START = {"offsets": {"orders/0": 3}, "ids": {"orders": 1}, "asked": "latest"}
KINDS = [
    ("query starts", Role.CONSUMER, "/queries/{}/start", START),
    ("producers with transactions", Role.PRODUCER, "/producers/init", {"transactional_id": "{}"}),
    ("names of commits", Role.PRODUCER, "/commits/{}/stagings", {"sequence": 1, "writer": "w"}),
]


@pytest.mark.parametrize(("kind", "role", "path", "body"), KINDS, ids=lambda found: str(found)[:20])
async def test_a_full_share_refuses_its_key_and_no_other(tmp_path, kind, role, path, body):
    disk = SimDisk()

    def asked(name: str) -> tuple[str, dict[str, object]]:
        return path.format(name), {
            key: value.format(name) if isinstance(value, str) else value
            for key, value in body.items()
        }

    async with in_process(tmp_path, LIMITS, disk=disk) as broker:
        broker.driver.execute(CreateTopic("orders", 1))
        ann, ben = (bearer(broker.key(name, role, "orders").text) for name in ("ann", "ben"))
        for name in ("p", "q"):
            assert (await broker.call("POST", *asked(name), headers=ann)).status < 300
    async with in_process(tmp_path, LIMITS, disk=disk) as broker:
        reply = await broker.call("POST", *asked("r"), headers=ann)
        assert reply.status == 409
        assert (reply.json["error"], reply.json["kind"]) == ("SHARE_FULL", kind)
        assert (reply.json["used"], reply.json["limit"]) == (2, 2)
        assert reply.json["setting"].endswith("_per_key_max")
        # What it has it may use, and another key has a share of its own.
        assert (await broker.call("POST", *asked("q"), headers=ann)).status < 300
        for name in ("r", "s"):
            assert (await broker.call("POST", *asked(name), headers=ben)).status < 300
        assert (await broker.call("POST", *asked("t"), headers=ben)).status == 409
