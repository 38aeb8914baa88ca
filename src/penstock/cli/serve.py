"""`penstock serve`: the broker as a server."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..server.settings import Settings

DEFAULT_FILE = "penstock.yaml"

EPILOG = """\b
Examples:
  penstock serve                                  127.0.0.1:8080, data in ./data
  penstock serve --port 9000 --data-dir /srv/q    somewhere else
  penstock serve --config /etc/penstock.yaml      with a file; see penstock config reference
  penstock serve --fsync always                   every answer waits for the disk
  penstock serve --set topic.num_partitions=12    any setting of penstock config reference
  PENSTOCK_LOG__LEVEL=debug penstock serve        any setting from the environment

\b
SIGTERM and Ctrl-C finish what is under way, sync and exit with 0. SIGHUP reads settings and certificates again.
Without keys only this machine is served; penstock keys create makes the first one.
"""

CONFIG = click.option(
    "--config",
    "file",
    # Whether it can be read is found out with the other faults of settings, which have a code of their own.
    type=click.Path(dir_okay=False, readable=False, path_type=Path),
    help=f"Settings in YAML; {DEFAULT_FILE} in this directory, if it is there.",
)


@click.command(epilog=EPILOG)
@CONFIG
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one.")
@click.option(
    "--binary-port",
    type=int,
    help="Port of the binary protocol, Kafka's and ours; 0 takes a free one, -1 is off.",
)
@click.option("--data-dir", help="Directory of all data.")
@click.option("--fsync", help="always, interval or never.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Any setting of penstock config reference; may be given again.",
)
@click.option(
    "--follow",
    metavar="HOST:PORT",
    help="Copy the node that listens for peers there (cluster.listen is needed, too).",
)
@click.option(
    "--begin-cluster",
    is_flag=True,
    default=None,
    help="Begin a new cluster although no peer answers: for its very first start alone.",
)
@click.option("--log-level", help="debug, info, warning or error.")
@click.option("--log-format", help="json or text.")
def serve(file: Path | None, **flags: Any) -> None:
    """Run the broker until it is told to stop."""
    from ..server.signals import delay_reload

    delay_reload()
    warn_of_variables()
    sources = SettingsSources(file, flags)
    settings = sources.load()
    require_directory(settings.broker.data_dir)

    from ..errors import PenstockError
    from ..runtime.fatal import exit_process
    from ..server.logs import configure_logging
    from ..server.serving import Serving

    logger = configure_logging(settings.log)
    serving = Serving(settings, sources.load, logger)
    try:
        serving.run(say_where)
    except Exception as error:
        if not isinstance(error, PenstockError | OSError):
            # Python's own exit code, 1, is that of damage, after which no supervisor starts a broker again.
            exit_process(error)
        raise


def warn_of_variables() -> None:
    """Names variables on stderr that were meant as settings and are none."""
    from ..server.settings_sources import warnings_of

    for warning in warnings_of(os.environ):
        click.echo(f"Warning: {warning}", err=True)


def require_directory(name: str) -> None:
    """InvalidConfig: the data directory is a file."""
    from ..errors import InvalidConfig

    if Path(name).exists() and not Path(name).is_dir():
        raise InvalidConfig("broker.data_dir", name, "a directory, not a file")


def say_where(http: str, binary: str) -> None:
    click.echo(f"penstock listens on {http}{f' and {binary}' if binary else ''}", err=True)


FLAGS = {
    "host": ("broker", "host"),
    "port": ("broker", "port"),
    "binary_port": ("broker", "binary_port"),
    "data_dir": ("broker", "data_dir"),
    "fsync": ("storage", "fsync"),
    "follow": ("cluster", "follow"),
    "begin_cluster": ("cluster", "begin"),
    "log_level": ("log", "level"),
    "log_format": ("log", "format"),
}


def text_in(path: Path) -> str:
    """Returns the text of a file of settings. InvalidSettings: it cannot be read, or is no text."""
    from ..errors import InvalidSettings

    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSettings([f"{path}: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise InvalidSettings([f"{path}: not text in UTF-8 from byte {error.start} on"]) from None


def _any_settings(words: Sequence[str]) -> dict[tuple[str, str], Any]:
    """Returns the settings of `--set`. UsageError: wrong form. `read_settings` checks whether they exist."""
    found: dict[tuple[str, str], Any] = {}
    for word in words:
        name, sign, value = word.partition("=")
        section, dot, key = name.strip().partition(".")
        if not sign or not dot:
            raise click.UsageError(f"--set takes SECTION.KEY=VALUE, not {word!r}")
        found[section, key] = value.strip()
    return found


class SettingsSources:
    """Where a broker's settings come from. A file that was read once has to be there whenever they are read again."""

    def __init__(self, file: Path | None, flags: dict[str, Any]) -> None:
        self._file, self._flags = file, flags

    def load(self) -> "Settings":
        """Returns the settings as they are now. InvalidSettings: something is wrong, or the file is gone."""
        if self._file is None and Path(DEFAULT_FILE).exists():
            self._file = Path(DEFAULT_FILE)
        return load_settings(self._file, self._flags)


def load_settings(file: Path | None, flags: dict[str, Any]) -> "Settings":
    """Returns the settings of a file, the environment and flags. InvalidSettings lists all problems."""
    from ..server.settings_sources import read_settings

    path = file or Path(DEFAULT_FILE)
    text = text_in(path) if file is not None or path.exists() else None
    given = _any_settings(flags.get("settings", ()))
    given |= {FLAGS[name]: flags[name] for name in FLAGS if flags.get(name) is not None}
    return read_settings(text, path=str(path), environment=os.environ, flags=given)
