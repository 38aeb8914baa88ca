"""What docs/from says in place of a call of another system is a call of the client."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from penstock.client import Client

PAGES = Path(__file__).parents[2] / "docs" / "from"


def client_calls():
    for page in sorted(PAGES.glob("*.md")):
        for code in re.findall(r"`(client\.[^`]*\))`", page.read_text(encoding="utf-8")):
            yield pytest.param(code, id=f"{page.stem} {code}")


@pytest.mark.parametrize("code", list(client_calls()))
def test_client_takes_the_arguments_of_a_page_for_newcomers(code):
    for node in ast.walk(ast.parse(code, mode="eval")):
        match node:
            case ast.Call(ast.Attribute(ast.Name("client"), name), args, keywords):
                words = [one for one in args if getattr(one, "value", None) is not ...]
                named = {one.arg: one for one in keywords}
                inspect.signature(getattr(Client, name)).bind_partial(None, *words, **named)
