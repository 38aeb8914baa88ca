"""The reference has every public name, called as it is called, and every public name says what it is."""

import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

import api_reference

MODULES = ["penstock", "penstock.client", "penstock.errors", "penstock.spark", "penstock.testing"]


@pytest.mark.parametrize("name", [one for one in MODULES if one != "penstock.errors"])
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert api_reference.undocumented(name) == []


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("penstock", ["Broker", "Broker.publish()", "Message", "Queue", "Queue.put()", "open()"]),
        ("penstock.client", ["AsyncClient", "Client", "Client.create_topic()", "Delivered.ack()"]),
        ("penstock.spark", ["session()", "with_data()"]),
        ("penstock.testing", ["VirtualClock", "VirtualClock.advance()"]),
    ],
)
def test_public_names_are_headings(module: str, names: list[str]) -> None:
    headings = [
        line.strip("# `")
        for line in api_reference.markdown(module).splitlines()
        if line.startswith("#")
    ]
    assert [name for name in names if name not in headings] == []
    assert not any("._" in heading for heading in headings)


def test_errors_are_a_table_with_code_and_status() -> None:
    lines = api_reference.markdown("penstock.errors").splitlines()
    assert "| `NotFound` | `NOT_FOUND` | 404 | no |" in lines
    assert "| `TooManyRequests` | `RESOURCE_EXHAUSTED` | 429 | yes |" in lines


SOURCE = '''"""A module."""
from typing import TypedDict, Unpack

class Options(TypedDict, total=False):
    """Options."""
    key: bytes | None

class Base:
    def inherited(self) -> int:
        """Comes from a parent."""

class Shown(Base):
    """A class."""
    def call(self, first: str, /, second: int = 2, *, third: bool = False, **options: Unpack[Options]) -> "Shown":
        """Calls."""
    @property
    def silent(self) -> str: ...
    def _hidden(self) -> None: ...

def silent() -> None: ...
'''


@pytest.fixture
def module(tmp_path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = tmp_path / "shown.py"
    file.write_text(SOURCE)
    spec = spec_from_file_location("penstock.shown", file)
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    monkeypatch.setitem(sys.modules, "penstock.shown", made)
    return "penstock.shown"


def test_names_without_a_word_about_themselves_are_found(module: str) -> None:
    assert api_reference.undocumented(module) == [
        "penstock.shown.Base",
        "penstock.shown.Shown.silent",
        "penstock.shown.silent",
    ]


def test_a_call_shows_its_keywords_and_what_it_returns(module: str) -> None:
    text = api_reference.markdown(module)
    called = text.split("### `Shown.call()`\n\n```py\n")[1].split("```")[0]
    words = "".join(called.split())
    for part in (
        "first:str",
        "second:int=2",
        "*,third:bool=False",
        "key:bytes|None=...",
        "->Shown",
    ):
        assert part in words, (part, called)
    assert "### `Shown.inherited()`" in text
    assert "_hidden" not in text
