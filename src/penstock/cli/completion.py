"""`penstock completion`: prints completion scripts for shells."""

import click

EPILOG = """\b
Examples:
  eval "$(penstock completion bash)"      in ~/.bashrc
  eval "$(penstock completion zsh)"       in ~/.zshrc
  penstock completion fish > ~/.config/fish/completions/penstock.fish
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for SHELL."""
    from click.shell_completion import ShellComplete, get_completion_class

    from .exits import PROGRAM
    from .root import COMPLETION_VARIABLE, root

    kind = get_completion_class(shell)
    assert kind is not None, "the choices above are the shells that click knows"
    # Not kind.source(): for bash that asks the local shell for its version, and the script may be for another machine.
    click.echo(ShellComplete.source(kind(root, {}, PROGRAM, COMPLETION_VARIABLE)))
