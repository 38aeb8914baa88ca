"""`penstock config`: checks, shows and lists settings."""

from pathlib import Path

import click

from .exits import Exit
from .output import Form, Output, output_options
from .serve import CONFIG, load_settings, warn_of_variables

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
@output_options
@click.pass_context
def check(ctx: click.Context, /, file: Path | None, *, output: Output) -> None:
    """Report everything that is wrong with the settings, and with the certificate that they name."""
    from ..errors import InvalidConfig, InvalidSettings
    from ..server.tls import check_certificate

    warn_of_variables()
    problems: list[str] = []
    try:
        settings = load_settings(file, {})
        if settings.tls.cert_file:
            check_certificate(settings.tls)
    except InvalidSettings as error:
        problems = list(error.problems)
    except InvalidConfig as error:
        problems = [str(error)]
    output.outcome("\n".join(problems) or "good", {"problems": problems})
    if problems:
        ctx.exit(Exit.FOUND_PROBLEMS)


@config.command(epilog="Example: penstock config show --json")
@CONFIG
@output_options
def show(file: Path | None, *, output: Output) -> None:
    """Print the settings that hold here, defaults included; as YAML, like the file, unless told otherwise."""
    from ..server.settings_sources import shown

    if output.is_table:
        output = Output(Form.YAML)
    output.record(shown(load_settings(file, {})))


@config.command(epilog="Example: penstock config reference > docs/configuration.md")
@click.option("--http", "is_http", is_flag=True, help="The routes of the server instead.")
def reference(*, is_http: bool) -> None:
    """Print all settings with their defaults and meanings, as Markdown."""
    if is_http:
        from ..server.http.reference import markdown
        from ..server.http.table import ROUTES

        click.echo(markdown(ROUTES), nl=False)
        return
    from ..server.settings_sources import reference as written

    click.echo(written(), nl=False)
