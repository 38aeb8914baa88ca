"""`penstock topic|produce|consume` against a server process, and without one."""

import json

import pytest

from penstock.cli.exits import Exit, run
from penstock.cli.root import root


@pytest.fixture
def call(url, capsys, monkeypatch):
    monkeypatch.setenv("PENSTOCK_SERVER", url)

    def call(*words):
        code = run(root, list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_topics_and_messages_from_the_shell(call):
    made = call("topic", "create", "shell", "--partitions", "1", "--set", "max_retries=5")
    assert made == (Exit.OK, "shell: 1 partitions\n", "")
    assert "max_retries: 5" in call("topic", "show", "shell")[1]
    assert call("produce", "shell", "one", "two", "--header", "a=b")[1] == "stored 2\n"
    assert call("consume", "shell")[1] == "0/0\tone\n0/1\ttwo\n"
    assert call("consume", "shell", "--group", "g", "--count", "1")[1] == "0/0\tone\n"
    (line,) = call("consume", "shell", "--group", "g", "--json")[1].splitlines()
    assert json.loads(line)["headers"] == [["a", "b"]]
    listed = [json.loads(one) for one in call("topic", "list", "--json")[1].splitlines()]
    assert 2 in [one["total_messages"] for one in listed if one["name"] == "shell"]
    assert call("topic", "delete", "shell")[0] == Exit.OK


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["topic", "show", "nowhere"], Exit.REFUSED, "there is no topic nowhere"),
        (["topic", "list", "--server", "nonsense"], Exit.REFUSED, "is not an address"),
        (["topic", "list", "--server", "http://127.0.0.1:1"], Exit.UNAVAILABLE, "refused"),
        (["topic", "create", "x", "--set", "y"], Exit.USAGE, "KEY=VALUE"),
    ],
)
def test_wrong_calls_get_one_clear_line(call, words, code, text):
    found, out, err = call(*words)
    assert (found, out) == (code, "")
    assert text in err
    assert "Traceback" not in err
