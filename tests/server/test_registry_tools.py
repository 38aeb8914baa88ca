"""What the tools around Confluent's registry ask of one: lists of schemas, contexts, settings, imports, formats."""

import json
from typing import Any

import pytest

from .rigs import in_process
from .test_schemas import INT, LONG, TEXT, refused

LINE = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message Line { string name = 1; }'}


async def answers(broker: Any, *call: Any) -> Any:
    reply = await broker.call(*call)
    assert reply.status == 200, reply.body
    return reply.json


async def test_schemas_are_listed_with_their_versions(tmp_path):
    async with in_process(tmp_path) as broker:
        for subject, schema in (("b", TEXT), ("a1", INT), ("a1", LONG), ("a2", INT)):
            await answers(broker, "POST", f"/subjects/{subject}/versions", schema)

        async def listed(query: str = "") -> list[tuple[str, int, int]]:
            found = await answers(broker, "GET", f"/schemas{query}")
            return [(version["subject"], version["version"], version["id"]) for version in found]

        whole = [("a1", 1, 2), ("a1", 2, 3), ("a2", 1, 2), ("b", 1, 1)]
        assert await listed() == whole
        described = await answers(broker, "GET", "/subjects/a1/versions/2")
        assert (await answers(broker, "GET", "/schemas?offset=1&limit=1")) == [described]
        assert await listed("?latestOnly=true") == whole[1:]
        assert await listed("?subjectPrefix=a") == whole[:3]
        assert await listed("?subjectPrefix=:.:a") == whole[:3]
        assert await listed("?subjectPrefix=:*:b") == whole[3:]
        assert await listed("?offset=3&limit=5") == whole[3:]
        assert await listed("?limit=0") == []
        assert await listed("?ruleType=DOMAIN") == await listed("?resourceType=topic") == []
        await answers(broker, "DELETE", "/subjects/a1/versions/2")
        assert await listed("?subjectPrefix=a1&latestOnly=true") == whole[:1]
        assert await listed("?subjectPrefix=a1&deleted=true") == whole[:2]


async def test_a_page_of_schemas_has_a_size(tmp_path):
    async with in_process(tmp_path) as broker:
        for number in range(70):
            text = json.dumps({"description": f"{number}{' ' * 250_000}"})
            body = {"schema": text, "schemaType": "JSON"}
            await answers(broker, "POST", f"/subjects/s{number}/versions", body)
        await refused(broker, 413, 413, "GET", "/schemas")
        assert len(await answers(broker, "GET", "/schemas?limit=60")) == 60


async def test_where_it_is_and_what_it_is(tmp_path):
    async with in_process(tmp_path) as broker:
        place = await answers(broker, "GET", "/v1/metadata/id")
        assert place["scope"]["clusters"].keys() == {"kafka-cluster", "schema-registry-cluster"}
        assert place["scope"]["path"] == []
        assert (await answers(broker, "GET", "/v1/metadata/version"))["version"]


async def test_compatibility_with_what_is_not_there(tmp_path):
    async with in_process(tmp_path) as broker:
        path = "/compatibility/subjects/s/versions"
        for version in ("", "/latest"):
            assert await answers(broker, "POST", path + version, INT) == {"is_compatible": True}
        await refused(broker, 404, 40401, "POST", f"{path}/3", INT)
        await answers(broker, "PUT", "/config", {"compatibility": "NONE"})
        await refused(broker, 404, 40401, "POST", f"{path}/3", INT)
        await refused(broker, 422, 42201, "POST", path, {"schema": "nothing"})
        said = await answers(broker, "POST", f"{path}?verbose=true", {"schema": "nothing"})
        assert (said["is_compatible"], len(said["messages"])) == (False, 1)


async def test_the_context_without_a_name_is_the_only_one(tmp_path):
    async with in_process(tmp_path) as broker:
        made = await answers(broker, "POST", "/subjects/:.:s/versions", INT)
        assert made["subject"] == "s"
        assert await answers(broker, "GET", "/subjects/s/versions") == [1]
        await refused(broker, 422, 42208, "POST", "/subjects/:.other:s/versions", INT)
        await refused(broker, 422, 42208, "PUT", "/mode/:.other:s", {"mode": "IMPORT"})


async def test_settings_are_obeyed_or_refused(tmp_path):
    async with in_process(tmp_path) as broker:
        level = {"compatibility": "FULL"}
        assert await answers(broker, "PUT", "/config", {"compatibilityLevel": "FULL"}) == level
        assert await answers(broker, "PUT", "/config", {}) == {}
        assert await answers(broker, "PUT", "/config", {**level, "normalize": False}) == level
        for name, value in (
            ("alias", "t"),
            ("normalize", True),
            ("compatibilityGroup", "major"),
            ("defaultMetadata", {"properties": {"a": "b"}}),
            ("overrideRuleSet", {"domainRules": []}),
        ):
            body = {"compatibility": "NONE", name: value}
            await refused(broker, 422, 42205, "PUT", "/config/s", body)
        await refused(broker, 404, 40408, "GET", "/config/s")
        assert await answers(broker, "GET", "/config") == {"compatibilityLevel": "FULL"}
        await answers(broker, "PUT", "/mode/s", {"mode": "READONLY"})
        await refused(broker, 422, 42205, "PUT", "/config/s", level)


async def test_imports_keep_the_ids_that_they_name(tmp_path):
    async with in_process(tmp_path) as broker:
        made = await answers(broker, "POST", "/subjects/s/versions", INT)
        await refused(broker, 422, 42205, "POST", "/subjects/t/versions", {**INT, "id": 70})
        await answers(broker, "PUT", "/mode/t", {"mode": "IMPORT"})
        await refused(broker, 422, 42205, "PUT", "/mode/s", {"mode": "IMPORT"})
        await refused(broker, 422, 42205, "POST", "/subjects/t/versions", TEXT)
        named = {**INT, "id": 70, "version": 1}
        assert (await answers(broker, "POST", "/subjects/t/versions", named))["id"] == 70
        other = {**LONG, "id": 70, "version": 2}
        await refused(broker, 422, 42205, "POST", "/subjects/t/versions", other)
        ids = await answers(broker, "GET", f"/schemas/guids/{made['guid']}/ids")
        assert ids == [{"context": ".", "id": 1}, {"context": ".", "id": 70}]
        assert (await answers(broker, "GET", "/schemas/ids/70"))["schema"] == INT["schema"]


@pytest.mark.parametrize(
    "path", ["/subjects/s/versions/1", "/schemas/ids/2", "/subjects/s/metadata", "POST"]
)
async def test_formats_are_obeyed_or_refused(tmp_path, path):
    async with in_process(tmp_path) as broker:
        line = await answers(broker, "POST", "/subjects/line/versions", LINE)
        refers = {
            "schemaType": "PROTOBUF",
            "schema": 'syntax = "proto3"; import "l"; message Order { Line line = 1; }',
            "references": [{"name": "l", "subject": "line", "version": line["version"]}],
        }
        await answers(broker, "POST", "/subjects/s/versions", refers)
        call = ("POST", "/subjects/s", refers) if path == "POST" else ("GET", path)

        def asked(written: str) -> tuple[Any, ...]:
            return call[0], f"{call[1]}?format={written}", *call[2:]

        assert (await answers(broker, *asked("default")))["schema"] == refers["schema"]
        assert (await answers(broker, *asked("serialized")))["schema"] != refers["schema"]
        for written in ("resolved", "ignore_extensions"):
            await refused(broker, 422, 42205, *asked(written))


async def test_a_deleted_subject_is_told_only_to_who_deletes(tmp_path):
    async with in_process(tmp_path) as broker:
        await answers(broker, "POST", "/subjects/s/versions", INT)
        await answers(broker, "DELETE", "/subjects/s")
        for path in ("", "/1", "/latest"):
            await refused(broker, 404, 40401, "GET", f"/subjects/s/versions{path}")
        await refused(broker, 404, 40401, "POST", "/subjects/s", INT)
        await refused(broker, 422, 42201, "POST", "/subjects/s/versions", {"schemaType": "AVRO"})
        await refused(broker, 404, 40404, "DELETE", "/subjects/s")
