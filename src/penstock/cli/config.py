"""`penstock config`: what holds, what is wrong, what there is."""

from pathlib import Path

import click

from .exits import Exit
from .serve import CONFIG, load_settings

EPILOG = """\b
Examples:
  penstock config check --config penstock.yaml    every mistake, one a line; exit code 1 if there is one
  penstock config show                            what `penstock serve` would use here
  penstock config reference                       all settings, as Markdown
"""


@click.group(epilog=EPILOG)
def config() -> None:
    """Check settings, show what holds, list what there is."""


@config.command(epilog="Example: penstock config check --config penstock.yaml")
@CONFIG
@click.pass_context
def check(ctx: click.Context, file: Path | None) -> None:
    """Report everything that is wrong with the settings."""
    from ..errors import InvalidSettings

    try:
        load_settings(file, {})
    except InvalidSettings as error:
        for problem in error.problems:
            click.echo(problem)
        ctx.exit(Exit.FOUND_PROBLEMS)
    click.echo("good")


@config.command(epilog="Example: penstock config show --json")
@CONFIG
@click.option("--json", "is_json", is_flag=True, help="One JSON object.")
def show(file: Path | None, *, is_json: bool) -> None:
    """Print the settings that hold here, defaults included."""
    from ..server.reading_settings import shown

    values = shown(load_settings(file, {}))
    if is_json:
        import json

        click.echo(json.dumps(values))
        return
    import yaml

    click.echo(yaml.safe_dump(values, sort_keys=False), nl=False)


@config.command(epilog="Example: penstock config reference > docs/configuration.md")
@click.option("--http", "is_http", is_flag=True, help="The routes of the server instead.")
def reference(*, is_http: bool) -> None:
    """Print all settings with their defaults and meanings, as Markdown."""
    if is_http:
        from ..server.http.reference import markdown
        from ..server.http.table import ROUTES

        click.echo(markdown(ROUTES), nl=False)
        return
    from ..server.reading_settings import reference as written

    click.echo(written(), nl=False)
