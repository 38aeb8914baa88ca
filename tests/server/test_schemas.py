"""The schema registry over HTTP: Confluent's routes, numbers of errors and content type, and keys with their rights."""

import json
from base64 import b64encode
from typing import Any

import pytest

from penstock.api.principals import Role
from penstock.server.audit_files import AUDIT_FILE

from .rigs import in_process, served
from .test_security import AUTH, bearer

REGISTRY = "application/vnd.schemaregistry.v1+json"
INT, LONG, TEXT = (
    {"schema": f'"{name}"', "schemaType": "AVRO"} for name in ("int", "long", "string")
)


def basic(key: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(key.replace('.', ':', 1).encode()).decode()}"}


async def refused(broker: Any, status: int, number: int, *call: Any, **more: Any) -> str:
    reply = await broker.call(*call, **more)
    assert (reply.status, reply.json.get("error_code")) == (status, number), reply.body
    assert set(reply.json) == {"error_code", "message"}
    return reply.json["message"]


@pytest.mark.parametrize("base", ["", "/schemas", "/v1"])
async def test_a_subject_from_its_first_version_to_its_last(tmp_path, base):
    async with in_process(tmp_path) as broker:

        async def call(method: str, path: str, body: Any = None) -> Any:
            reply = await broker.call(method, base + path, body)
            assert reply.status == 200, reply.body
            return reply.json

        assert await call("GET", "/subjects") == []
        first = await call("POST", "/subjects/s/versions", INT)
        assert (first["id"], first["version"], first["schemaType"]) == (1, 1, "AVRO")
        assert await call("POST", "/subjects/s/versions", INT) == first
        assert (await call("POST", "/subjects/s/versions", LONG))["id"] == 2
        assert (await call("POST", "/subjects/s", INT))["version"] == 1
        assert await call("GET", "/subjects") == ["s"]
        assert await call("GET", "/subjects/s/versions") == [1, 2]
        latest = await call("GET", "/subjects/s/versions/latest")
        assert (latest["subject"], latest["version"], latest["schema"]) == ("s", 2, '"long"')
        assert await call("GET", "/subjects/s/versions/1/schema") == "int"
        assert (await call("GET", "/schemas/ids/1"))["schema"] == '"int"'
        assert await call("GET", "/schemas/ids/1/schema") == "int"
        assert await call("GET", "/schemas/ids/1/subjects") == ["s"]
        assert await call("GET", "/schemas/ids/1/versions") == [{"subject": "s", "version": 1}]
        assert (await call("GET", f"/schemas/guids/{first['guid']}"))["schema"] == '"int"'
        assert await call("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
        assert (await call("GET", "/subjects/s/metadata"))["version"] == 2
        assert (await call("GET", "/schemas/stats"))["versions"] == 2
        path = "/compatibility/subjects/s/versions/latest"
        assert await call("POST", path, INT) == {"is_compatible": False}
        said = await call("POST", f"{path}?verbose=true", INT)
        assert said["messages"] == ["version 2, backward: /: int does not read long"]
        assert await call("DELETE", "/subjects/s/versions/1") == 1
        assert await call("GET", "/subjects/s/versions") == [2]
        assert await call("GET", "/subjects/s/versions?deleted=true") == [1, 2]
        assert await call("GET", "/subjects/s/versions?deletedOnly=true") == [1]
        assert await call("DELETE", "/subjects/s") == [2]
        assert await call("GET", "/subjects") == []
        assert await call("GET", "/subjects?deleted=true") == ["s"]
        assert (await call("GET", "/schemas/ids/1"))["schema"] == '"int"'
        assert await call("DELETE", "/subjects/s?permanent=true") == [1, 2]
        assert await call("GET", "/subjects?deleted=true") == []


async def test_levels_and_modes(tmp_path):
    async with in_process(tmp_path) as broker:

        async def call(*words: Any) -> Any:
            reply = await broker.call(*words)
            assert reply.status == 200, reply.body
            return reply.json

        assert await call("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
        assert await call("PUT", "/config", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
        await refused(broker, 404, 40408, "GET", "/config/s")
        level = {"compatibilityLevel": "FULL"}
        assert await call("GET", "/config/s?defaultToGlobal=true") == level
        await call("PUT", "/config/s", {"compatibility": "none"})
        assert await call("GET", "/config/s") == {"compatibilityLevel": "NONE"}
        assert await call("DELETE", "/config/s") == {"compatibilityLevel": "NONE"}
        await refused(broker, 404, 40408, "DELETE", "/config/s")
        await refused(broker, 422, 42203, "PUT", "/config", {"compatibility": "SOME"})
        assert await call("GET", "/mode") == {"mode": "READWRITE"}
        assert await call("PUT", "/mode/s", {"mode": "READONLY"}) == {"mode": "READONLY"}
        await refused(broker, 422, 42205, "POST", "/subjects/s/versions", INT)
        await refused(broker, 404, 40409, "GET", "/mode/t")
        await refused(broker, 422, 42204, "PUT", "/mode", {"mode": "SOME"})
        await call("PUT", "/mode/s", {"mode": "IMPORT"})
        named = {**INT, "id": 40, "version": 3}
        assert (await call("POST", "/subjects/s/versions", named))["id"] == 40
        assert await call("DELETE", "/mode/s") == {"mode": "IMPORT"}


async def test_every_refusal_has_confluents_number(tmp_path):
    async with in_process(tmp_path) as broker:
        for path in (
            "/subjects/s/versions",
            "/subjects/s/versions/1",
            "/subjects/s/versions/latest",
        ):
            await refused(broker, 404, 40401, "GET", path)
        await refused(broker, 404, 40401, "POST", "/subjects/s", INT)
        await refused(broker, 404, 40403, "GET", "/schemas/ids/1")
        await refused(broker, 404, 40403, "GET", "/schemas/ids/x")
        await refused(broker, 404, 40403, "GET", "/schemas/guids/x")
        await refused(broker, 422, 42201, "POST", "/subjects/s/versions", {"schema": "nothing"})
        unknown = {"schema": "{}", "schemaType": "XML"}
        await refused(broker, 422, 42201, "POST", "/subjects/s/versions", unknown)
        lost = {**TEXT, "references": [{"name": "a", "subject": "none", "version": 1}]}
        await refused(broker, 422, 42201, "POST", "/subjects/s/versions", lost)
        rules = {**INT, "ruleSet": {"domainRules": []}}
        await refused(broker, 422, 42201, "POST", "/subjects/s/versions", rules)
        await broker.call("POST", "/subjects/s/versions", INT)
        said = await refused(broker, 409, 409, "POST", "/subjects/s/versions", TEXT)
        assert "string does not read int" in said
        await refused(broker, 404, 40403, "POST", "/subjects/s", LONG)
        await refused(broker, 404, 40402, "GET", "/subjects/s/versions/7")
        await refused(broker, 422, 42202, "GET", "/subjects/s/versions/none")
        await refused(broker, 404, 40405, "DELETE", "/subjects/s?permanent=true")
        await refused(broker, 404, 40407, "DELETE", "/subjects/s/versions/1?permanent=true")
        await broker.call("DELETE", "/subjects/s")
        await refused(broker, 404, 40404, "DELETE", "/subjects/s")
        await refused(broker, 404, 40406, "DELETE", "/subjects/s/versions/1")
        await refused(
            broker,
            400,
            400,
            "POST",
            "/subjects/s/versions",
            b"{",
            headers={"content-type": REGISTRY},
        )
        await refused(
            broker,
            415,
            415,
            "POST",
            "/subjects/s/versions",
            b"{}",
            headers={"content-type": "text/plain"},
        )


async def test_what_is_referred_to_stays(tmp_path):
    async with in_process(tmp_path) as broker:
        # Names of files with slashes are subjects, too.
        name = "shop/line.proto"
        line = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message Line {}'}
        assert (
            await broker.call("POST", "/subjects/shop%2Fline.proto/versions", line)
        ).status == 200
        assert (await broker.call("GET", "/subjects")).json == [name]
        order = {
            "schemaType": "PROTOBUF",
            "schema": f'syntax = "proto3"; import "{name}"; message Order {{ Line line = 1; }}',
            "references": [{"name": name, "subject": name, "version": 1}],
        }
        made = (await broker.call("POST", "/subjects/orders-value/versions", order)).json
        assert made["references"] == [{"name": name, "subject": name, "version": 1}]
        path = "/subjects/shop%2Fline.proto/versions/1/referencedby"
        assert (await broker.call("GET", path)).json == [made["id"]]
        await refused(broker, 422, 42206, "DELETE", "/subjects/shop%2Fline.proto")
        text = (await broker.call("GET", f"/schemas/ids/{made['id']}")).json["schema"]
        assert text == order["schema"]
        serialized = (await broker.call("GET", f"/schemas/ids/{made['id']}?format=serialized")).json
        again = {**order, "schema": serialized["schema"]}
        found = await broker.call("POST", "/subjects/orders-value?normalize=true", again)
        assert found.json["id"] == made["id"]


async def test_confluents_content_type_is_taken_and_given(tmp_path):
    async with in_process(tmp_path) as broker:
        headers = {"content-type": REGISTRY, "accept": f"{REGISTRY}, application/json;q=0.5"}
        body = json.dumps(INT).encode()
        reply = await broker.call("POST", "/subjects/s/versions", body, headers=headers)
        assert (reply.status, reply.headers["content-type"]) == (200, REGISTRY)
        plain = await broker.call("GET", "/subjects")
        assert plain.headers["content-type"] == "application/json"


async def test_rights_are_those_of_topics(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = basic((tmp_path / "admin.key").read_text().strip())
        shop = bearer(broker.key("shop", Role.PRODUCER, "shop.").text)
        narrow = basic(broker.key("narrow", Role.ADMIN, "shop.").text)
        path, other = "/subjects/shop.orders-value/versions", "/subjects/bank.orders-value/versions"
        await refused(broker, 401, 401, "GET", "/subjects")
        await refused(broker, 401, 401, "GET", "/subjects", headers={"authorization": "Basic ?"})
        await refused(broker, 403, 403, "POST", path, INT, headers=shop)
        assert (await broker.call("POST", path, INT, headers=narrow)).status == 200
        assert (await broker.call("POST", other, LONG, headers=admin)).status == 200
        await refused(broker, 403, 403, "POST", other, TEXT, headers=narrow)
        # A producer finds what is registered, as its client asks for it whenever it starts.
        assert (await broker.call("POST", path, INT, headers=shop)).json["id"] == 1
        assert (await broker.call("GET", "/schemas/ids/1", headers=shop)).status == 200
        await refused(broker, 404, 40403, "GET", "/schemas/ids/2", headers=shop)
        assert (await broker.call("GET", "/subjects", headers=shop)).json == ["shop.orders-value"]
        refers = {
            **TEXT,
            "references": [{"name": "a", "subject": "bank.orders-value", "version": 1}],
        }
        await refused(broker, 403, 403, "POST", "/subjects/shop.x/versions", refers, headers=narrow)
        await refused(broker, 403, 403, "PUT", "/config", {"compatibility": "NONE"}, headers=narrow)
        await refused(broker, 403, 403, "DELETE", "/subjects/shop.orders-value", headers=shop)
        lines = (tmp_path / AUDIT_FILE).read_text()
        assert "register a schema" in lines
        assert "shop.orders-value: version 1, id 1" in lines


@pytest.mark.tier("test")
def test_a_restart_knows_everything(tmp_path):
    data = tmp_path / "data"
    with served(data) as broker:
        assert broker.call("POST", "/subjects/s/versions", INT).status == 200
        assert broker.call("POST", "/subjects/s/versions", LONG).status == 200
        assert broker.call("DELETE", "/subjects/s/versions/1").status == 200
        assert broker.call("PUT", "/config/s", {"compatibility": "NONE"}).status == 200
        broker.kill()
    with served(data) as broker:
        assert broker.call("GET", "/subjects/s/versions").json == [2]
        assert broker.call("GET", "/subjects/s/versions?deleted=true").json == [1, 2]
        assert broker.call("GET", "/config/s").json == {"compatibilityLevel": "NONE"}
        assert broker.call("POST", "/subjects/s/versions", TEXT).json["id"] == 3
