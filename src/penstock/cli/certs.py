"""`penstock certs`: certificates for the nodes of a cluster, signed by an authority of its own."""

from pathlib import Path

import click

from .output import Output, output_options

EPILOG = """\b
Examples:
  penstock certs --directory certs --name orders --node 1 --node 2
  scp certs/ca.pem certs/node-2.pem certs/node-2-key.pem standby:/etc/penstock/

\b
Node N gets ca.pem, node-N.pem and node-N-key.pem: cluster.ca_file, cert_file and key_file. ca-key.pem stays where it is
made, away from both machines; it is needed only for more nodes. Needs pip install 'penstock[cluster]'.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Where the files are written; none of them may be there.",
)
@click.option("--name", default="penstock", show_default=True, help="As cluster.name says.")
@click.option(
    "--node",
    "nodes",
    type=click.IntRange(1, 255),
    multiple=True,
    required=True,
    help="broker.node_id of a node; once for each.",
)
@click.option(
    "--days", type=click.IntRange(1, 7300), default=825, show_default=True, help="Good for so long."
)
@output_options
def certs(directory: Path, name: str, nodes: tuple[int, ...], days: int, *, output: Output) -> None:
    """Make the certificates with which nodes of a cluster know each other."""
    from ..server.cluster_settings import ClusterSection
    from ..server.standby.certificates import make_certificates

    ClusterSection(name=name)  # Refuses a name that no settings could have.
    made = make_certificates(directory, name, list(dict.fromkeys(nodes)), days)
    output.rows([{"file": str(path)} for path in made], ["file"])
