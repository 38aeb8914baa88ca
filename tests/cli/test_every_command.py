"""What all commands have in common: help with examples, JSON, one readable line for a server that is not there."""

import re
from pathlib import Path

import click
import pytest

from penstock.cli import exits
from penstock.cli.exits import Exit
from penstock.cli.root import root
from penstock.testing.server import running_server

# An export of a topic without messages.
EXPORTED = Path(__file__).parent / "exported"
CLI_PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
# Streams of text by nature, or a server that runs until it is told to stop.
WITHOUT_JSON = {"serve", "worker", "completion", "config reference", "log repair"}
# They start Spark before they look for the server; their own tests call them.
ON_SPARK = {"pipeline", "archive", "load", "sql", "triage"}
# One way to call each command that talks to a server.
REMOTE = [
    "topic list",
    "topic create t",
    "topic show t",
    "topic set t a=1",
    "topic grow t 3",
    "topic compact t",
    "topic delete t",
    "produce t x",
    "produce t x --delay 1h",
    "consume t",
    "consume t --group g",
    "worker penstock.model:check_name --topic t --group g",
    "group list",
    "group show g",
    "group lag g",
    "group held g",
    "group reset g --to earliest",
    "group delete g",
    "delay list t",
    "delay show t 0/1",
    "delay move t 0/1 --delay 1h",
    "delay cancel t 0/1",
    "delay stats",
    "schedule create t k x --every 1h",
    "schedule list t",
    "schedule show t k",
    "schedule pause t k",
    "schedule resume t k",
    "schedule run t k",
    "schedule delete t k",
    "transactions list",
    "transactions describe 1-1",
    "transactions abort 1-1",
    "commits list",
    "commits show n",
    "commits reset n",
    "dlq list t",
    "dlq history t",
    "dlq show t 0/1",
    "dlq edit t 0/1 --value x",
    "dlq redrive t --all",
    "replay t --to u",
    "copy t --to u",
    "dlq discard t --all --yes",
    "export t --to /tmp/not-there-yet/t",
    f"import {EXPORTED}",
    "top --once",
    "trace message t 0/1",
    "trace show 0123456789abcdef0123456789abcdef",
    "trace list",
    "trace search t --key k",
    "trace latency",
    "bench publish",
    "bench consume",
    "bench latency",
    "schema list",
    "schema show s",
    "schema diff s",
    f"schema register s {__file__} --type avro",
    f"schema check s {__file__} --type avro",
    "keys list",
    "keys create n --role admin",
    "keys rotate k",
    "keys revoke k",
]


def commands(group: click.Group, path: tuple[str, ...] = ()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


ALL = dict(commands(root))


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_help_with_an_example(path, capsys):
    assert exits.run(root, [*path.split(), "--help"]) == Exit.OK
    shown = capsys.readouterr().out
    assert re.search(rf"Examples?:\s.*\bpenstock {path}\b", shown, re.DOTALL)


@pytest.mark.parametrize("path", sorted(set(ALL) - WITHOUT_JSON))
def test_everything_that_prints_has_json(path):
    names = [name for parameter in ALL[path].params for name in parameter.opts]
    assert "--json" in names


def test_list_of_remote_commands_is_whole():
    remote = {
        path
        for path, command in ALL.items()
        if "context" in {one.name for one in command.params} and path.split()[0] not in ON_SPARK
    }
    called = {max((one for one in ALL if line.startswith(one)), key=len) for line in REMOTE}
    assert remote == called, "REMOTE needs one line for each command that talks to a server"


@pytest.mark.parametrize("line", REMOTE)
def test_server_that_is_not_there_costs_one_line(run, line):
    done = run(*line.split(), "--server", "penstock://127.0.0.1:1")
    assert (done.code, done.out) == (Exit.UNAVAILABLE, "")
    said = [one for one in done.err.splitlines() if one.startswith("Error: ")]
    assert len(said) == 1
    assert "penstock://127.0.0.1:1" in said[0]
    assert "does a broker run there?" in said[0]


@pytest.mark.parametrize(
    "address", ["nonsense", "ftp://here", "penstock://", "penstock://x:port", ""]
)
def test_address_that_is_none_costs_one_line(run, address):
    done = run("topic", "list", "--server", address)
    assert (done.code, done.out, done.err.count("\n")) == (Exit.REFUSED, "", 1)
    assert "is not an address" in done.err


@pytest.mark.tier("test")
def test_wrong_key_costs_one_line_and_is_not_shown(run, tmp_path, surroundings):
    data = tmp_path / "data"
    made = run("keys", "create", "ops", "--role", "admin", "--data-dir", str(data))
    config = tmp_path / "p.yaml"
    config.write_text("auth: {enabled: true}\n")
    key_file = tmp_path / "key"
    with running_server(data, "--config", str(config)) as address:
        where = ("--server", address)
        without = run("topic", "list", *where)
        assert without.code == Exit.REFUSED
        assert "--key-file or PENSTOCK_KEY (UNAUTHENTICATED)" in without.err
        for key in ("pk-000000000000.wrong", "not a key", "nö"):
            surroundings.setenv("PENSTOCK_KEY", key)
            refused = run("topic", "list", *where)
            assert (refused.code, refused.err.count("\n")) == (Exit.REFUSED, 1)
            assert key not in refused.err
        key_file.write_text(made.out)
        assert run("topic", "list", *where, "--key-file", str(key_file)).code == Exit.OK
        run("context", "add", "ops", address, "--key-file", str(key_file))
        assert "ops" in run("keys", "list").out


def test_exit_codes_are_written_in_one_place_of_the_docs():
    table = re.findall(r"^\| (\d+) \| (.*) \|$", CLI_PAGE, re.MULTILINE)
    written = {int(code): meaning.replace("\\|", "|") for code, meaning in table}
    assert written == {int(code): meaning for code, meaning in exits.MEANINGS.items()}


@pytest.mark.parametrize("path", ALL)
def test_every_command_is_on_the_page(path):
    assert re.search(rf"penstock {path}\b", CLI_PAGE), "docs/cli.md needs a line with it"


def test_commands_of_the_page_exist():
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", CLI_PAGE, re.DOTALL)
        for line in block.splitlines()
    ]
    called = re.findall(r"penstock ((?:[a-z][a-z-]* ?)+)", "\n".join(lines))
    assert len(called) > 40
    for words in called:
        first = words.split()
        assert first[0] in root.list_commands(click.Context(root))
        group = root.get_command(click.Context(root), first[0])
        if isinstance(group, click.Group):
            assert first[1] in group.list_commands(click.Context(group)), words
