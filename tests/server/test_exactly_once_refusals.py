"""What transactions and named commits refuse, in one table: the documented code, and not a byte of the disk changes."""

from typing import Any

from penstock.api.principals import Role
from penstock.api.topics import CreateTopic
from penstock.sim.disk import SimDisk

from .rigs import in_process
from .test_security import bearer

SETTINGS = {("auth", "enabled"): True, ("limits", "staged_bytes_per_producer_max"): 4096}
LARGE = "x" * 3000


async def test_what_is_refused_has_its_code_and_changes_nothing(tmp_path):
    async with in_process(tmp_path, SETTINGS, disk=SimDisk()) as broker:
        broker.driver.execute(CreateTopic("orders", 1))
        ann, ben = (bearer(broker.key(one, Role.PRODUCER).text) for one in ("ann", "ben"))

        async def call(path: str, body: dict[str, Any], by: dict[str, str] = ann) -> tuple:
            found = await broker.call("POST", path, body, headers=by)
            return found.status, found.json

        async def staging(sequence: int, name: str = "nightly") -> str:
            opened = {"sequence": sequence, "writer": "w"}
            return (await call(f"/commits/{name}/stagings", opened))[1]["staging"]

        expired = await staging(1)
        broker.clock.advance("25h")
        broker.settle()
        _, old = await call("/producers/init", {"transactional_id": "p"})
        _, mine = await call("/producers/init", {"transactional_id": "p"})
        full, other = await staging(2), await staging(2, "other")
        message = {"topic": "orders", "value": LARGE, "partition": 0}
        messages = {"topic": "orders", "messages": [{"value": LARGE}], "partition": 0}
        assert (await call("/transactions/publish", {**mine, **message}))[0] == 200
        assert (await call(f"/stagings/{full}/messages", messages))[0] == 200
        unknown = {**mine, "producer_id": mine["producer_id"] + 1}

        def commit(one: str, count: int = 0) -> dict[str, Any]:
            listed = [{"staging": one, "messages": count}]
            return {"sequence": 2, "writer": "w", "stagings": listed}

        table = (
            ("stale epoch", "/transactions/publish", {**old, **message}, 409, "PRODUCER_FENCED"),
            ("stale epoch", "/transactions/commit", old, 409, "PRODUCER_FENCED"),
            ("gap", "/transactions/publish", {**mine, **message, "value": "x", "sequence": 5}, 400, "OUT_OF_SEQUENCE"),
            ("gap", f"/stagings/{other}/messages", {**messages, "sequence": 5}, 400, "OUT_OF_SEQUENCE"),
            ("unknown producer", "/transactions/publish", {**unknown, **message}, 404, "NOT_FOUND"),
            ("unknown producer", "/transactions/commit", unknown, 404, "NOT_FOUND"),
            ("unknown staging", f"/stagings/{'4' * 16}/messages", messages, 404, "UNKNOWN_STAGING"),
            ("unknown staging", "/commits/nightly", commit("4" * 16), 404, "UNKNOWN_STAGING"),
            ("expired staging", f"/stagings/{expired}/messages", messages, 404, "UNKNOWN_STAGING"),
            ("expired staging", "/commits/nightly", commit(expired), 404, "UNKNOWN_STAGING"),
            ("over quota", "/transactions/publish", {**mine, **message}, 429, "STAGING_QUOTA"),
            ("over quota", f"/stagings/{full}/messages", messages, 429, "STAGING_QUOTA"),
            ("name too long", "/producers/init", {"transactional_id": "n" * 251}, 400, "INVALID_ARGUMENT"),
            ("name too long", f"/commits/{'n' * 246}/stagings", {"sequence": 1, "writer": "w"}, 400, "INVALID_NAME"),
            ("staging of another name", "/commits/nightly", commit(other), 409, "STAGING_MISMATCH"),
        )  # fmt: skip
        of_another_key = (
            ("/commits/nightly", commit(full, 1)),
            (f"/stagings/{full}/messages", messages),
            ("/transactions/commit", mine),
        )
        broker.settle()
        before = broker.disk.tree()
        for what, path, body, status, code in table:
            found, told = await call(path, body)
            assert (found, told["error"]) == (status, code), (what, path)
        for path, body in of_another_key:
            found, told = await call(path, body, ben)
            assert (found, told["error"]) == (403, "PERMISSION_DENIED"), path
        assert broker.disk.tree() == before
        assert (await call("/transactions/commit", mine))[1]["offsets"][0]["count"] == 1
        assert (await call("/commits/nightly", commit(full, 1)))[1]["complete"]
