"""`penstock audit`: the log of what administrators did."""

from pathlib import Path

import click

from .exits import Exit
from .output import Output, output_options

EPILOG = """\b
Examples:
  penstock audit verify ./data          of a broker that runs, or does not
  penstock audit verify ./data --json   the same for a script

\b
Each line carries the hash of the one before, from file to file (audit-N.jsonl, from line N of the log on; the newest is
audit.jsonl), and audit.head names the last one.
"""


@click.group(epilog=EPILOG)
def audit() -> None:
    """Check the log of what administrators did."""


@audit.command(epilog="Example: penstock audit verify ./data")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@output_options
def verify(directory: Path, *, output: Output) -> None:
    """Look for lines and files that were changed or removed in the audit log of DIRECTORY.

    Exit code 1 if there are any.
    """
    from ..errors import FileMissing, PenstockError
    from ..runtime import RealDisk
    from ..server.audit_files import AUDIT_FILE, HEAD_FILE, verify

    if not any(directory.joinpath(name).exists() for name in ("meta", AUDIT_FILE, HEAD_FILE)):
        raise FileMissing(f"a data directory in {directory}")
    with RealDisk.open_read_only(directory) as disk:
        try:
            problems = verify(disk)
        except PenstockError as error:
            # It knows the path inside the directory only.
            error.args = (f"{directory}/{error}",)
            raise
    rows = [
        {"file": problem.file, "line": problem.line or None, "problem": problem.text}
        for problem in problems
    ]
    if output.is_table:
        output.rows(rows, ["file", "line", "problem"], empty="no problems")
    else:
        output.record({"problems": rows})
    if problems:
        raise click.exceptions.Exit(Exit.FOUND_PROBLEMS)
