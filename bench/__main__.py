"""`python -m bench`."""

import sys

from penstock.cli.exits import run

from .command import bench

sys.exit(run(bench, sys.argv[1:]))
