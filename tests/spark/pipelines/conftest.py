"""Commands in this process, with what they print."""

import pytest

from penstock.cli.exits import Exit, run
from penstock.cli.root import root


@pytest.fixture
def said(capfd):
    def call(*words, code=Exit.OK):
        assert run(root, list(words)) == code
        found = capfd.readouterr()
        return found.out + found.err

    return call
