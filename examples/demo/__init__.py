"""A log and a broker at work, killed in the middle, and what is left of it: `make demo`."""

from pathlib import Path

# Where a child process has to start for `python -m examples.demo.writer` to be found.
ROOT = Path(__file__).parents[2]
