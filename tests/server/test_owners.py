"""Whose producers and names of commits are, over the wire: a key's, by its id."""

from typing import Any

import pytest

from penstock.api.keys import RevokeKey
from penstock.api.principals import Role
from penstock.api.topics import CreateTopic

from .rigs import in_process
from .test_security import bearer

AUTH = {("auth", "enabled"): True}


@pytest.mark.parametrize("prefixes", [(), ("orders",)])
async def test_a_key_with_the_name_of_a_revoked_one_inherits_nothing(tmp_path, prefixes):
    async with in_process(tmp_path, AUTH) as broker:
        broker.driver.execute(CreateTopic("orders", 1))
        first = broker.key("ann", Role.PRODUCER)
        root = bearer(broker.key("root", Role.ADMIN).text)

        async def call(by: dict[str, str], path: str, body: dict[str, Any]) -> tuple[int, Any]:
            reply = await broker.call("POST", path, body, headers=by)
            return reply.status, reply.json

        named, opened = {"transactional_id": "billing"}, {"sequence": 1, "writer": "w"}
        _, session = await call(bearer(first.text), "/producers/init", named)
        message = {**session, "topic": "orders", "value": "1"}
        assert (await call(bearer(first.text), "/transactions/publish", message))[0] == 200
        assert (await call(bearer(first.text), "/commits/nightly/stagings", opened))[0] == 201
        broker.driver.execute(RevokeKey(first.key.key_id))
        second = bearer(broker.key("ann", Role.PRODUCER, *prefixes).text)
        for path, body in (
            ("/producers/init", named),
            ("/transactions/publish", message),
            ("/transactions/abort", session),
            ("/transactions/commit", session),
            ("/commits/nightly/stagings", opened),
        ):
            status, refused = await call(second, path, body)
            assert (status, refused["error"]) == (403, "PERMISSION_DENIED"), path
        shown = await broker.call("GET", "/commits/nightly", headers=root)
        assert shown.json["owner"] == first.key.key_id, "the name may be another key's by now"
        assert (await call(root, "/transactions/commit", session))[0] == 200
