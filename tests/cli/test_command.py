"""The `penstock` command as a script sees it: words in, text and an exit code out."""

import os
import subprocess
import sys

import click
import pytest

from penstock.cli import exits
from penstock.cli.root import COMMANDS, root
from penstock.errors import DamagedBatch, PenstockError, Refused, SyncFailed, Unavailable

HEAVY = ("numpy", "rich", "msgspec", "cramjam", "crc32c", "pyarrow", "matplotlib", "penstock.codec")


def penstock(*words: str, **settings) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **settings)


def loaded_after(*words: str) -> set[str]:
    """The modules that a run of the command leaves imported."""
    program = (
        "import sys\nfrom penstock.cli.exits import run\nfrom penstock.cli.root import root\n"
        f"run(root, {list(words)!r})\nprint(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("bench", "--help"),
        ("bench", "publish", "--help"),
        ("dlq", "redrive", "--help"),
        ("top", "--help"),
        ("context", "list"),
    ],
)
def test_looking_around_loads_nothing_heavy(words):
    assert loaded_after(*words).isdisjoint(HEAVY)


def test_list_of_commands_loads_none_of_them():
    loaded = loaded_after("--help")
    assert loaded.isdisjoint(entry.target.partition(":")[0] for entry in COMMANDS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_shows_examples(name, capsys):
    assert isinstance(COMMANDS[name].load(), click.Command)
    assert exits.run(root, [name, "--help"]) == exits.Exit.OK
    assert "Examples:" in capsys.readouterr().out


def test_help_documents_every_exit_code(capsys):
    exits.run(root, ["--help"])
    shown = capsys.readouterr().out
    assert all(f"{code:>3}  {exits.MEANINGS[code]}" in shown for code in exits.Exit)


def test_version_is_the_one_that_was_installed():
    assert penstock("--version").stdout == "penstock 0.1.0\n"


def test_unknown_command_is_a_usage_error_with_the_nearest_name(capsys):
    assert exits.run(root, ["bnch"]) == exits.Exit.USAGE
    assert "no such command 'bnch'; did you mean bench?" in capsys.readouterr().err


def test_unknown_option_is_a_usage_error(capsys):
    assert exits.run(root, ["--colour"]) == exits.Exit.USAGE
    assert "--colour" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_us_back(shell, capsys):
    assert exits.run(root, ["completion", shell]) == exits.Exit.OK
    assert "_PENSTOCK_COMPLETE" in capsys.readouterr().out


def test_completion_offers_the_commands():
    words = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": "penstock ", "COMP_CWORD": "1"}
    assert penstock(env=words).stdout.split() == [f"plain,{name}" for name in COMMANDS]


def command_that_raises(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command("fail", callback=fail)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (Refused("no\nsuch thing"), 3, "Error: no such thing (INVALID_ARGUMENT)\n"),
        (Unavailable("busy"), 4, "Error: busy (UNAVAILABLE)\n"),
        (SyncFailed("a.log", "EIO"), 4, "Error: fsync of a.log failed: EIO (SYNC_FAILED)\n"),
        (
            DamagedBatch("a.log", 64, "cut short", next_offset=None),
            1,
            "Error: damaged batch in a.log at byte 64: cut short (DAMAGED_BATCH)\n",
        ),
        (FileNotFoundError(2, "No such file", "a.log"), 4, "Error: a.log: No such file\n"),
        (click.ClickException("odd"), 3, "Error: odd\n"),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
        (click.exceptions.Exit(1), 1, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_error_becomes_one_line_and_its_exit_code(error, code, line, capsys):
    assert exits.run(command_that_raises(error), []) == code
    assert capsys.readouterr() == ("", line)


def test_every_family_of_errors_has_an_exit_code():
    assert set(PenstockError.__subclasses__()) == set(exits.EXIT_OF_FAMILY)


def test_bug_of_ours_is_not_hidden():
    with pytest.raises(AssertionError, match="broken"):
        exits.run(command_that_raises(AssertionError("broken")), [])


@pytest.mark.parametrize(
    "say",
    ["sys.stdout.write('waits in the buffer')", "click.echo('written at once')"],
    ids=["found at the end", "found on the way"],
)
def test_reader_that_left_is_answered_quietly(say):
    program = (
        "import sys, click\nfrom penstock.cli.exits import run\n"
        f"sys.exit(run(click.Command('talk', callback=lambda: {say}), []))"
    )
    reading, writing = os.pipe()
    os.close(reading)
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, env=settings
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (exits.Exit.OUTPUT_CLOSED, b"")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("publish", "produce"), ("pub", "produce"), ("sub", "consume"), ("status", "top")],
)
def test_words_of_other_tools_are_understood_and_not_listed(word, meant):
    context = click.Context(root)
    assert root.get_command(context, word) is root.get_command(context, meant)
    assert word not in root.list_commands(context)


@pytest.mark.parametrize("group", ["topic", "group"])
@pytest.mark.parametrize(
    ("word", "meant"), [("describe", "show"), ("ls", "list"), ("rm", "delete")]
)
def test_words_of_other_tools_are_understood_inside_of_groups(group, word, meant):
    found = root.get_command(click.Context(root), group)
    context = click.Context(found)
    assert found.get_command(context, word) is found.get_command(context, meant) is not None
    assert word not in found.list_commands(context)
