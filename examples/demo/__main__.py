"""`python -m examples.demo`."""

import sys

from penstock.cli.exits import run

from .command import demo

sys.exit(run(demo, sys.argv[1:]))
