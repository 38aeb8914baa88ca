"""Writes request_tables.py and response_tables.py in src/penstock/server/kafka: the messages that the server speaks.

    python tools/kafka_tables.py                  from tools/kafka_messages.json
    python tools/kafka_tables.py --read FOLDER    first that file itself, from Apache's message descriptions

The folder holds Apache's descriptions as they are, for example kafka/protocol/schemas/resources of the PyPI package
kafka-python. Of them only facts are kept: names, types, versions, tags and defaults. What the folder does not have, as
that package has no groups of KIP-848 and no share groups, stays as it is in the file.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FACTS = ROOT / "tools" / "kafka_messages.json"
TABLES = ROOT / "src" / "penstock" / "server" / "kafka"
LAST = 32767


class Served(NamedTuple):
    """Versions of a message that the server reads and writes."""

    key: int
    first: int
    last: int


SERVED = {
    "Produce": Served(0, 3, 12),
    "Fetch": Served(1, 4, 12),
    "ListOffsets": Served(2, 1, 7),
    "Metadata": Served(3, 0, 12),
    "OffsetCommit": Served(8, 2, 9),
    "OffsetFetch": Served(9, 1, 9),
    "FindCoordinator": Served(10, 0, 4),
    "JoinGroup": Served(11, 0, 9),
    "Heartbeat": Served(12, 0, 4),
    "LeaveGroup": Served(13, 0, 5),
    "SyncGroup": Served(14, 0, 5),
    "DescribeGroups": Served(15, 0, 5),
    "ListGroups": Served(16, 0, 4),
    "SaslHandshake": Served(17, 0, 1),
    "ApiVersions": Served(18, 0, 4),
    "CreateTopics": Served(19, 2, 7),
    "DeleteTopics": Served(20, 1, 6),
    "DeleteRecords": Served(21, 0, 2),
    "InitProducerId": Served(22, 0, 4),
    "OffsetForLeaderEpoch": Served(23, 2, 4),
    "AddPartitionsToTxn": Served(24, 0, 3),
    "AddOffsetsToTxn": Served(25, 0, 3),
    "EndTxn": Served(26, 0, 3),
    "TxnOffsetCommit": Served(28, 0, 3),
    "DescribeConfigs": Served(32, 1, 4),
    "AlterConfigs": Served(33, 0, 2),
    "SaslAuthenticate": Served(36, 0, 2),
    "CreatePartitions": Served(37, 0, 3),
    "DeleteGroups": Served(42, 0, 2),
    "IncrementalAlterConfigs": Served(44, 0, 1),
    "DescribeCluster": Served(60, 0, 1),
    "ConsumerGroupHeartbeat": Served(68, 0, 1),
    "ConsumerGroupDescribe": Served(69, 0, 1),
    "ShareGroupHeartbeat": Served(76, 1, 1),
    "ShareGroupDescribe": Served(77, 1, 1),
    "ShareFetch": Served(78, 1, 1),
    "ShareAcknowledge": Served(79, 1, 1),
}


def read_descriptions(folder: Path) -> list[dict[str, Any]]:
    """The facts of every message that is served, out of a folder of Apache's descriptions."""
    found = []
    for name in SERVED:
        for kind in ("Request", "Response"):
            file = folder / f"{name}{kind}.json"
            if not file.exists():
                continue
            lines = file.read_text().splitlines()
            told = json.loads("\n".join(re.sub(r"^\s*//.*|\s//\s.*$", "", line) for line in lines))
            shared = {one["name"]: one["fields"] for one in told.get("commonStructs", ())}
            found.append(
                {
                    "name": name,
                    "key": told["apiKey"],
                    "kind": kind.lower(),
                    "flexible": told["flexibleVersions"],
                    "fields": [_facts(one, shared) for one in told["fields"]],
                }
            )
    return found


def _facts(told: dict[str, Any], shared: dict[str, list[Any]]) -> dict[str, Any]:
    kind = told["type"]
    is_array = kind.startswith("[]")
    inner = kind.removeprefix("[]")
    fields = told.get("fields") or shared.get(inner)
    facts = {
        "name": re.sub(r"(?<=[a-z])(?=[A-Z])", "_", told["name"]).lower(),
        "type": ("[]" if is_array else "") + ("struct" if fields else inner),
        "versions": told["versions"],
        "nullable": told.get("nullableVersions", "none"),
        "tag": told.get("tag", -1),
        "tagged": told.get("taggedVersions", "none"),
    }
    if "default" in told:
        facts["default"] = str(told["default"])
    if fields:
        facts["fields"] = [_facts(one, shared) for one in fields]
    return facts


def write_tables(messages: list[dict[str, Any]], kind: str) -> str:
    """The source of the module with all requests, or with all responses."""
    lines = [
        f'"""The {kind}s of Kafka that the server speaks, by tools/kafka_tables.py. `schema` says how to read it."""',
        "",
        f'{kind.upper()}S = """',
    ]
    for message in messages:
        if message["kind"] == kind:
            key, first, last = SERVED[message["name"]]
            flexible = min(_span(message["flexible"])[0], last + 1)
            lines.append(f"{message['name']} {key} {first}-{last} flexible={flexible}")
            for one in message["fields"]:
                lines += _lines(one, first, last, " ")
    return "\n".join([*lines, '"""']) + "\n"


def _lines(facts: dict[str, Any], first: int, last: int, indent: str) -> list[str]:
    since, until = _span(facts["versions"])
    if until < first or since > last:
        return []
    nullable, nullable_until = _span(facts["nullable"])
    assert nullable_until >= min(until, last) or nullable > last, facts
    line = f"{indent}{facts['name']} {facts['type']}"
    since, until = max(since, first), min(until, last)
    if (since, until) != (first, last):
        line += f" {since}-{until}"
    if nullable <= last:
        line += f" nullable={max(nullable, first)}"
    if facts["tag"] >= 0 and _span(facts["tagged"])[0] <= last:
        line += f" tag={facts['tag']}"
    if (default := _default(facts)) is not None:
        line += f" default={default}"
    inner = (_lines(one, first, last, indent + " ") for one in facts.get("fields", ()))
    return [line, *(one for lines in inner for one in lines)]


def _default(facts: dict[str, Any]) -> str | None:
    """The default as it is written; None where it is the one of the type."""
    said = facts.get("default", "").lower()
    if said in ("", "0", "false"):
        return None
    return (
        said
        if said in ("null", "true") or not facts["type"].startswith(("int", "uint"))
        else str(int(said, 0))
    )


def _span(said: str) -> tuple[int, int]:
    """First and last version of "3+", "0-7", "5" or "none"."""
    if said == "none":
        return LAST, LAST
    first, _, last = said.partition("-")
    if said.endswith("+"):
        return int(said[:-1]), LAST
    return int(first), int(last or first)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--read"]:
        found = read_descriptions(Path(arguments[1]))
        read = {one["name"] for one in found}
        found += [one for one in json.loads(FACTS.read_text()) if one["name"] not in read]
        lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in found)
        FACTS.write_text(f"[\n{lines}\n]\n")
    messages = json.loads(FACTS.read_text())
    for kind in ("request", "response"):
        (TABLES / f"{kind}_tables.py").write_text(write_tables(messages, kind))


if __name__ == "__main__":
    main(sys.argv[1:])
