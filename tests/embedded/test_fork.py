"""A forked process that outlives the owner of a directory does not keep it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.errors import AlreadyOpen

OWNER = """
import os, sys, time, penstock
queue = penstock.open(sys.argv[1])
if not os.fork():
    os.write(1, b"forked")
    sys.stdin.read()
    os._exit(0)
time.sleep(60)
"""


@pytest.mark.tier("test")
def test_a_child_that_lives_on_does_not_keep_the_directory(tmp_path):
    program = [sys.executable, "-c", OWNER, tmp_path]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout.read(6) == b"forked"
            # The child has let go of its own, not of its parent's.
            with pytest.raises(AlreadyOpen, match=f"process {owner.pid}"):
                penstock.open(tmp_path)
            owner.kill()
            owner.wait()
            penstock.open(tmp_path).close()
            # The child lives until its input ends.
            owner.stdin.close()
        finally:
            owner.kill()


def test_who_closes_a_directory_gives_it_back_whoever_has_the_file(tmp_path):
    """A process that is forked while the lock is made, or closed, has it without knowing."""
    lock = tmp_path / "lock"
    queue = penstock.open(tmp_path)
    (found,) = [one for one in Path("/dev/fd").iterdir() if one.exists() and one.samefile(lock)]
    inherited = os.dup(int(found.name))
    try:
        queue.close()
        penstock.open(tmp_path).close()
    finally:
        os.close(inherited)
