"""`penstock context`: servers by name, whose keys are never written or shown."""

import json
import stat

import pytest
from click.shell_completion import ShellComplete

from penstock.cli.exits import Exit
from penstock.cli.remote import BrokerOptions
from penstock.cli.root import root
from penstock.contexts import DEFAULT_SERVER

SECRET = "pk-0123456789ab.very-secret"


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "key"
    file.write_text(SECRET + "\n")
    return file


@pytest.fixture
def contexts(tmp_path):
    return tmp_path / "contexts.json"


def test_contexts_are_added_used_and_removed(run):
    assert run("context", "list").err.startswith("no contexts yet")
    run("context", "add", "one", "penstock://one:1")
    run("context", "add", "two", "penstock://two:2")
    assert BrokerOptions(None, None, None).found()[0].server == "penstock://one:1"
    assert run("context", "use", "two").out == "two is in use\n"
    assert BrokerOptions(None, None, None).found()[0].server == "penstock://two:2"
    assert BrokerOptions(None, "one", None).found()[0].server == "penstock://one:1"
    rows = [json.loads(line) for line in run("context", "list", "--json").out.splitlines()]
    assert [(one["name"], one["current"]) for one in rows] == [("one", False), ("two", True)]
    assert run("context", "remove", "two").code == Exit.OK
    assert BrokerOptions(None, None, None).found()[0].server == DEFAULT_SERVER
    gone = run("context", "use", "two")
    assert gone == (Exit.REFUSED, "", "Error: there is no context two (NOT_FOUND)\n")


def test_a_context_that_takes_the_place_of_another_says_so(run):
    run("context", "add", "live", "penstock://one.example", "--key-env", "KEY")
    assert (
        "instead of"
        not in run("context", "add", "live", "penstock://one.example", "--key-env", "KEY").out
    )
    assert (
        ", instead of penstock://one.example; in use"
        in run("context", "add", "live", "penstock://two.example").out
    )
    shown = run("context", "add", "live", "penstock://three.example", "--json").out
    assert json.loads(shown)["replaced"] is True


def test_key_is_found_but_never_written_or_shown(run, contexts, key_file, surroundings):
    surroundings.setenv("LIVE_KEY", SECRET)
    shown = run("context", "add", "file", "penstock://one:1", "--key-file", str(key_file))
    more = run("context", "add", "env", "penstock://one:1", "--key-env", "LIVE_KEY", "--json")
    everything = [*shown, *more, *run("context", "list"), *run("context", "list", "--json")]
    assert SECRET not in contexts.read_text()
    assert not [text for text in everything if SECRET in str(text)]
    assert BrokerOptions(None, "file", None).found()[1] == SECRET
    assert BrokerOptions(None, "env", None).found()[1] == SECRET


def test_file_is_only_for_its_owner_also_if_it_was_not(run, contexts):
    contexts.write_text('{"current": null, "contexts": {}}')
    contexts.chmod(0o644)
    run("context", "add", "one", "penstock://one:1")
    assert stat.S_IMODE(contexts.stat().st_mode) == 0o600
    assert [file.name for file in contexts.parent.iterdir()] == ["contexts.json"]


def test_key_of_the_environment_is_not_sent_to_a_context(run, surroundings):
    run("context", "add", "one", "penstock://one:1")
    surroundings.setenv("PENSTOCK_KEY", SECRET)
    assert BrokerOptions(None, None, None).found()[1] is None
    assert BrokerOptions("penstock://two:2", None, None).found()[1] == SECRET


def test_certificates_are_found_as_keys_are(run, surroundings, tmp_path):
    mine, theirs = tmp_path / "mine.pem", tmp_path / "theirs.pem"
    run("context", "add", "one", "penstocks://one:1")
    run("context", "add", "two", "penstocks://two:2", "--ca-file", str(theirs))

    def trusted(server, context, said=None):
        return BrokerOptions(server, context, None, said).found()[0].ca_file

    assert trusted("penstocks://three:3", None) is None
    surroundings.setenv("PENSTOCK_CA_FILE", "env.pem")
    assert trusted("penstocks://three:3", None) == "env.pem"
    assert trusted("penstocks://three:3", None, mine) == str(mine)
    assert [trusted(None, name) for name in ("one", "two")] == [None, str(theirs)]
    assert trusted(None, "two", mine) == str(mine)


@pytest.mark.parametrize(
    "words", [["topic", "list"], ["consume", "orders"], ["top"], ["keys", "list"]]
)
def test_a_file_without_certificates_is_said(run, tmp_path, words):
    missing = str(tmp_path / "none.pem")
    found = run(*words, "--server", "penstocks://127.0.0.1:1", "--ca-file", missing)
    assert found.code == Exit.REFUSED
    assert missing in found.err


def test_command_line_comes_before_the_environment(run, surroundings, key_file):
    run("context", "add", "one", "penstock://one:1")
    surroundings.setenv("PENSTOCK_SERVER", "penstock://env:1")
    assert BrokerOptions(None, None, None).found()[0].server == "penstock://env:1"
    assert BrokerOptions(None, "one", None).found()[0].server == "penstock://one:1"
    assert BrokerOptions("penstock://said:1", None, key_file).found() == (
        BrokerOptions("penstock://said:1", None, None).found()[0],
        SECRET,
    )
    surroundings.delenv("PENSTOCK_SERVER")
    surroundings.setenv("PENSTOCK_CONTEXT", "nobody")
    assert run("topic", "list").err == "Error: there is no context nobody (NOT_FOUND)\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["add", "one", "nonsense"], Exit.REFUSED, "is not an address"),
        (["add", "a b", "penstock://one:1"], Exit.REFUSED, "no spaces"),
        (["add", "x" * 65, "penstock://one:1"], Exit.REFUSED, "64"),
        (["add", "one", "penstock://one:1", "--key-file", "/no/such"], Exit.REFUSED, "/no/such"),
        (["add", "one", "penstock://u:p@one:1"], Exit.REFUSED, "only scheme"),
        (
            ["add", "one", "penstock://one:1", "--key-file", "k", "--key-env", "K"],
            Exit.USAGE,
            "one of them",
        ),
        (["remove", "nobody"], Exit.REFUSED, "nobody"),
    ],
)
def test_bad_contexts_are_refused_and_nothing_is_written(run, contexts, words, code, text):
    done = run("context", *words)
    assert (done.code, done.out) == (code, "")
    assert text in done.err
    assert not contexts.exists()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"contexts": {"a": {}}}', '{"contexts": {"a": {"color": 1}}}', "\xff"]
)
def test_broken_file_is_named_and_left_alone(run, contexts, content):
    contexts.write_bytes(content.encode("latin-1"))
    done = run("topic", "list")
    assert (done.code, done.err.count("\n")) == (Exit.REFUSED, 1)
    assert "contexts.json is not a file of contexts" in done.err
    assert run("context", "add", "one", "penstock://one:1").code == Exit.REFUSED
    assert contexts.read_bytes() == content.encode("latin-1")


@pytest.mark.parametrize(
    ("content", "text"), [("", "one key"), ("two words", "one key"), ("\xff", "no text")]
)
def test_file_that_holds_no_key_is_refused_without_showing_it(run, key_file, content, text):
    key_file.write_bytes(content.encode("latin-1"))
    done = run("topic", "list", "--server", "penstock://127.0.0.1:1", "--key-file", str(key_file))
    assert done.code == Exit.REFUSED
    assert text in done.err
    assert "words" not in done.err


def test_empty_variable_of_a_context_is_named(run, surroundings):
    run("context", "add", "one", "penstock://127.0.0.1:1", "--key-env", "NO_SUCH_KEY")
    done = run("topic", "list")
    assert (done.code, "NO_SUCH_KEY" in done.err) == (Exit.REFUSED, True)


def test_names_of_contexts_are_completed(run):
    run("context", "add", "live", "penstock://one:1")
    run("context", "add", "stage", "penstock://two:2")
    complete = ShellComplete(root, {}, "penstock", "_PENSTOCK_COMPLETE")
    found = complete.get_completions(["topic", "list", "--context"], "st")
    assert [one.value for one in found] == ["stage"]
    assert [one.value for one in complete.get_completions(["context", "use"], "")] == [
        "live",
        "stage",
    ]
