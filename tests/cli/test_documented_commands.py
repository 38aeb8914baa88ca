"""Every command that a page of the documentation tells its reader to type is there."""

import re
from pathlib import Path

import click
import pytest

from penstock.cli.root import root

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
# Between backticks, or at the beginning of a line of a block for the shell.
# `penstock listens on ...` is what a broker says.
TYPED = re.compile(
    r"(?:`|^(?:\$ )?)penstock (?!listens)([a-z][a-z-]*)(?: ([a-z][a-z-]*)\b)?", re.MULTILINE
)


def typed() -> list[tuple[str, str, str]]:
    pages = [page for page in PAGES if "decisions" not in page.parts]
    return [
        (page.name, *words) for page in pages for words in TYPED.findall(page.read_text("utf-8"))
    ]


def problem(first: str, second: str) -> str | None:
    """What is wrong with the first two words behind `penstock`."""
    command = root.get_command(click.Context(root), first)
    if command is None:
        return f"penstock {first}"
    if isinstance(command, click.Group) and second:
        known = command.list_commands(click.Context(command))
        return None if second in known else f"penstock {first} {second}"
    return None


def test_documented_commands_exist() -> None:
    found = typed()
    assert len(found) > 100
    wrong = {(page, problem(first, second)) for page, first, second in found}
    assert {(page, one) for page, one in wrong if one is not None} == set()


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ("grops", "reset", "penstock grops"),
        ("group", "rest", "penstock group rest"),
        ("group", "reset", None),
        ("serve", "", None),
        ("consume", "orders", None),
    ],
)
def test_a_command_that_is_not_there_is_seen(first: str, second: str, answer: str | None) -> None:
    assert problem(first, second) == answer
