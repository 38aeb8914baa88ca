"""Every fault that tools/docs.py knows is planted once in a small tree, and seen; our own pages have none."""

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import docs

CLEAN = {
    "README.md": "![How](docs/pictures/top.svg)\n",
    "deploy/unit.service": "[Unit]\n",
    "docs/README.md": "# First\n\n## Start\n\n- [Two](two.md)\n- [More](more/README.md)\n",
    "docs/two.md": "# Two & `three`\n\n## A heading, really\n\nBack to [it](#a-heading-really), a "
    "[file](../deploy/unit.service), <https://example.com/x>.\n\n![Picture](pictures/a.svg)\n\n"
    "| a | b |\n|---|---|\n| [x](more/deep.md#part-1) | y |\n",
    "docs/more/README.md": "# More\n\n[up](../two.md#a-heading-really), [deep](deep.md)\n",
    "docs/more/deep.md": "# Deep\n\n## Part\n\n## Part\n\n[folder](../more)\n",
    "docs/pictures/a.svg": "<svg/>",
    "docs/pictures/top.svg": "<svg/>",
}


def plant(root: Path, files: dict[str, str]) -> docs.Site:
    for path, text in {**CLEAN, **files}.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return docs.Site(root)


def problems(site: docs.Site) -> list[str]:
    return site.problems + docs.unused_pictures(site)


def test_our_own_pages_have_no_fault():
    assert problems(docs.Site(docs.ROOT)) == []


class Links(HTMLParser):
    """What a page refers to, and what in it can be referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src"}:
                self.targets.append(value or "")
            elif name == "id":
                self.ids.add(value or "")


@pytest.mark.tier("test")
def test_links_of_our_written_pages_lead_to_written_files(tmp_path):
    docs.Site(docs.ROOT).write(tmp_path)
    pages = {file: Links(file.read_text(encoding="utf-8")) for file in tmp_path.rglob("*.html")}
    assert len(pages) > 20
    for file, page in pages.items():
        for target in page.targets:
            path, _, anchor = target.partition("#")
            if "://" in path:
                continue
            goal = (file.parent / unquote(path)).resolve() if path else file
            assert goal.is_file(), (file, target)
            assert not anchor or anchor in pages[goal].ids, (file, target)


def test_clean_tree_has_no_fault(tmp_path):
    assert problems(plant(tmp_path, {})) == []


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("docs/two.md", "# Two\n\n[x](gone.md)\n", "docs/two.md: gone.md leads nowhere"),
        ("docs/two.md", "# Two\n\n[x](../../etc/passwd)\n", "leads nowhere"),
        ("docs/two.md", "# Two\n\n![x](pictures/gone.svg)\n", "pictures/gone.svg leads nowhere"),
        ("docs/two.md", "# Two\n\n[x](#nothing)\n", "docs/two.md has no heading #nothing"),
        ("docs/two.md", "# Two\n\n[x](more/deep.md#part-2)\n", "has no heading #part-2"),
        ("docs/two.md", "Two\n", "docs/two.md: 0 titles, not one"),
        ("docs/two.md", "# Two\n\n# Three\n", "docs/two.md: 2 titles, not one"),
        ("docs/lonely.md", "# Lonely\n\n[me](lonely.md)\n", "docs/lonely.md: no page leads here"),
        ("docs/pictures/b.svg", "<svg/>", "docs/pictures/b.svg: no page shows it"),
    ],
)
def test_planted_fault_is_seen(tmp_path, path, text, problem):
    assert any(problem in one for one in problems(plant(tmp_path, {path: text})))


def test_pages_are_written_with_navigation_and_working_links(tmp_path):
    site = plant(tmp_path, {})
    target = tmp_path / "build" / "docs"
    site.write(target)
    two = target.joinpath("two.html").read_text()
    assert "<title>Two &amp; three - Penstock</title>" in two
    assert '<a href="two.html" aria-current="page">Two &amp; three</a>' in two
    assert '<h2 id="a-heading-really">' in two
    assert 'href="more/deep.html#part-1"' in two
    assert "https://example.com/x" in two
    deep = target.joinpath("more", "deep.html").read_text()
    assert '<a href="../more/index.html">folder</a>' in deep
    assert 'href="../style.css"' in deep
    for name in ("files/deploy/unit.service", "pictures/a.svg", "index.html", "style.css"):
        assert target.joinpath(name).is_file()


def written(tmp_path: Path, files: dict[str, str]) -> Path:
    target = tmp_path / "build" / "docs"
    plant(tmp_path, files).write(target)
    return target


def test_pages_lead_to_the_one_before_and_the_one_behind(tmp_path):
    target = written(tmp_path, {})
    steps = [
        ("index.html", None, "two.html"),
        ("two.html", "index.html", "more/index.html"),
        ("more/index.html", "../two.html", "../more/deep.html"),
        ("more/deep.html", "../more/index.html", None),
    ]
    for name, before, behind in steps:
        page = target.joinpath(name).read_text()
        assert ('rel="prev"' in page, 'rel="next"' in page) == (bool(before), bool(behind)), name
        assert before is None or f'<a rel="prev" href="{before}">' in page
        assert behind is None or f'<a rel="next" href="{behind}">' in page


def test_contents_of_a_page_are_its_headings(tmp_path):
    target = written(tmp_path, {})
    deep = target.joinpath("more", "deep.html").read_text()
    assert deep.index('<a href="#part">Part</a>') < deep.index('<a href="#part-1">Part</a>')
    assert "<h2>On this page</h2>" not in target.joinpath("two.html").read_text()


def test_search_finds_every_section_with_its_text(tmp_path):
    two = "# Two\n\nBefore\n`it`.\n\n## A *heading*\n\nSome text.\n\n```sh\nrun me\n```\n\n| cell |\n|---|\n| x |\n"
    target = written(tmp_path, {"docs/two.md": two, "docs/more/deep.md": "# Deep\n"})
    text = target.joinpath("search.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("searchIndex = ").removesuffix(";\n"))
    found = {
        (page, anchor): (title, heading, body.split())
        for page, title, anchor, heading, body in index
    }
    assert found["two.html", ""] == ("Two", "Two", ["Two", "Before", "it."])
    title, heading, body = found["two.html", "a-heading"]
    assert (title, heading, body) == (
        "Two",
        "A heading",
        ["Some", "text.", "run", "me", "cell", "x"],
    )
    assert {page for page, _ in found} == {
        "index.html",
        "two.html",
        "more/index.html",
        "more/deep.html",
    }


def test_a_block_that_names_a_module_becomes_its_reference(tmp_path):
    files = {
        "docs/README.md": CLEAN["docs/README.md"] + "- [Testing](testing.md)\n",
        "docs/testing.md": "# Testing\n\n```api\npenstock.testing\n```\n\n[clock](#virtualclock)\n",
    }
    site = plant(tmp_path, files)
    assert problems(site) == []
    site.write(tmp_path / "out")
    html = tmp_path.joinpath("out", "testing.html").read_text()
    assert '<h3 id="virtualclockadvance"><code>VirtualClock.advance()</code></h3>' in html


def test_what_was_written_before_is_gone(tmp_path):
    target = tmp_path / "build" / "docs"
    target.mkdir(parents=True)
    target.joinpath("old.html").write_text("old")
    plant(tmp_path, {}).write(target)
    assert not target.joinpath("old.html").exists()


def test_markup_in_pages_is_text(tmp_path):
    site = plant(tmp_path, {"docs/two.md": "# Two\n\n<script>alert(1)</script>\n"})
    site.write(tmp_path / "out")
    assert "<script>" not in tmp_path.joinpath("out", "two.html").read_text()


def test_command_line_writes_only_what_is_good(tmp_path, monkeypatch, capsys):
    plant(tmp_path, {})
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    assert docs.main(["--check"]) == 0
    assert not tmp_path.joinpath("build").exists()
    assert docs.main([]) == 0
    assert tmp_path.joinpath("build", "docs", "index.html").is_file()
    assert docs.main(["--color"]) == 2
    tmp_path.joinpath("docs", "two.md").unlink()
    assert docs.main([]) == 1
    assert "docs/README.md: two.md leads nowhere" in capsys.readouterr().out
