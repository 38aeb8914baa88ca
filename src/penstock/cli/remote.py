"""What commands that talk to a server share."""

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..client import Client

SERVER_VARIABLE = "PENSTOCK_SERVER"
KEY_VARIABLE = "PENSTOCK_KEY"

SERVER = click.option(
    "--server",
    envvar=SERVER_VARIABLE,
    default="http://127.0.0.1:8080",
    show_default=True,
    help=f"Address of the broker; also from {SERVER_VARIABLE}. A key is taken from {KEY_VARIABLE}.",
)
JSON = click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")


def connected(server: str) -> "Client":
    from ..client import Client, ClientSettings, RetryPolicy

    # Somebody looks at a terminal: better to say soon that nobody is there than to try for long.
    settings = ClientSettings(retry=RetryPolicy(retries=1))
    return Client(server, key=os.environ.get(KEY_VARIABLE), settings=settings)
