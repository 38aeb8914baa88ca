"""`penstock schema`, against a server."""

import json

import pytest

from penstock.cli import exits
from penstock.cli.exits import Exit
from penstock.cli.root import root
from penstock.testing.server import running_server

RECORD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
WIDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def penstock(tmp_path, capsys, monkeypatch):
    def run(*words: str) -> tuple[int, str]:
        code = exits.run(root, ["schema", *words])
        return code, capsys.readouterr().out

    with running_server(tmp_path / "data") as server:
        monkeypatch.setenv("PENSTOCK_SERVER", server)
        yield run


def test_a_schema_from_its_file_to_its_difference(tmp_path, penstock):
    first, second = tmp_path / "order.avsc", tmp_path / "wider.avsc"
    first.write_text(json.dumps(RECORD))
    second.write_text(json.dumps(WIDER))
    assert penstock("register", "orders-value", str(second)) == (
        0,
        "orders-value: version 1, id 1\n",
    )
    code, said = penstock("check", "orders-value", str(first))
    assert (code, said.splitlines()) == (
        Exit.FOUND_PROBLEMS,
        ["orders-value: not compatible", "version 1, backward: /id: int does not read long"],
    )
    assert penstock("register", "orders-value", str(first))[0] == Exit.REFUSED
    made = json.loads(penstock("register", "line", str(first), "--json")[1])
    assert (made["subject"], made["version"], made["id"]) == ("line", 1, 2)
    assert penstock("register", "line", str(second))[0] == 0
    code, said = penstock("diff", "line")
    assert code == 0
    assert '-      "type": "int"' in said
    assert '+      "type": "long"' in said
    assert json.loads(penstock("show", "line", "--version", "1")[1]) == RECORD
    assert json.loads(penstock("show", "--id", "1")[1]) == WIDER
    rows = [line.split() for line in penstock("list")[1].splitlines()[1:]]
    assert rows == [
        ["line", "2", "1", "AVRO", "BACKWARD"],
        ["orders-value", "1", "1", "AVRO", "BACKWARD"],
    ]
    assert [line.split()[1] for line in penstock("list", "line")[1].splitlines()[1:]] == ["1", "2"]
    assert penstock("show", "nothing")[0] == Exit.REFUSED
    assert penstock("diff", "orders-value")[0] == Exit.USAGE


def test_references_and_languages_are_said(tmp_path, penstock):
    line, order = tmp_path / "line.proto", tmp_path / "order.txt"
    line.write_text('syntax = "proto3"; message Line {}')
    order.write_text('syntax = "proto3"; import "line.proto"; message Order { Line line = 1; }')
    assert penstock("register", "line", str(line))[0] == 0
    assert penstock("register", "order", str(order))[0] == Exit.USAGE
    words = ("order", str(order), "--type", "protobuf", "--reference")
    assert penstock("register", *words, "line.proto")[0] == Exit.USAGE
    assert penstock("register", *words, "line.proto=line:9")[0] == Exit.REFUSED
    assert penstock("register", *words, "line.proto=line")[0] == 0
    assert "import" in penstock("show", "order")[1]
