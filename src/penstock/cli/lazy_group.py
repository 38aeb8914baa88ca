"""A click group that imports a command when it is called, not when it is listed."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import click


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is defined ("module:name"), and its line in the list of commands."""

    target: str
    summary: str

    def load(self) -> click.Command:
        module, _, name = self.target.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command), f"{self.target} is not a command"
        return command


class LazyGroup(click.Group):
    """A group whose subclass names its table: `class Root(LazyGroup): table = COMMANDS`."""

    table: ClassVar[Mapping[str, LazyCommand]] = {}
    # Words that people of other tools type, and the command that is meant. They are not listed.
    aliases: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(self.aliases.get(cmd_name, cmd_name))
        return entry.load() if entry else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        is_known = word in self.table or word in self.aliases
        if not is_known and not word.startswith("-") and not ctx.resilient_parsing:
            raise unknown("command", word, self.table, ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.table.items()])


class PlainGroup(click.Group):
    """A group whose commands answer to the words of other tools, too; those are not listed."""

    aliases: ClassVar[Mapping[str, str]] = {
        "describe": "show",
        "info": "show",
        "ls": "list",
        "rm": "delete",
    }

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found or super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))


def unknown(
    kind: str, word: str, known: Mapping[str, object] | list[str], ctx: click.Context | None = None
) -> click.UsageError:
    """Returns the error for a word that is not in a list, with the nearest that is."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return click.UsageError(f"no such {kind} {word!r}; {advice}", ctx)
