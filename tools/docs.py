"""Builds docs/*.md to HTML pages with navigation, and checks every internal link and picture.

    python tools/docs.py            write build/docs; exit code 1 and one line for each problem if something is wrong
    python tools/docs.py --check    only check

A problem is a link to a page, a heading, a file or a picture that is not there, a page without exactly one title, and a
page that no other page leads to. `docs/README.md` is the first page; the headings and links on it are the navigation.
Links to files of the project outside of docs/ are kept: the file is copied beside the pages.
"""

import html
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
INDEX = "README.md"
PICTURES = {".svg", ".png"}
FILES = "files"

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --code: #f6f8fa; --link: #0550ae; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --code: #161b22; --link: #79c0ff; }
}
body { margin: 0; font: 16px/1.6 system-ui, sans-serif; color: var(--ink); }
.page { display: flex; max-width: 76rem; margin: 0 auto; }
nav { flex: 0 0 15rem; padding: 1.5rem 1rem; font-size: .9rem; border-right: 1px solid var(--line); }
nav h2 { font-size: .8rem; margin: 1.2rem 0 .3rem; color: var(--soft); text-transform: uppercase; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav [aria-current] { font-weight: 600; }
main { flex: 1; min-width: 0; padding: 1.5rem 2rem 4rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
pre { background: var(--code); padding: .8rem 1rem; overflow-x: auto; border-radius: 6px; line-height: 1.4; }
code { font: .88em ui-monospace, monospace; background: var(--code); padding: .1em .3em; border-radius: 4px; }
pre code { padding: 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3rem .7rem; text-align: left; vertical-align: top; }
img { max-width: 100%; background: #fff; border-radius: 6px; }
@media (max-width: 50rem) { .page { display: block; } nav { border: 0; border-bottom: 1px solid var(--line); } }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - Penstock</title>
<link rel="stylesheet" href="{up}style.css">
</head>
<body>
<div class="page">
<nav>
{navigation}
</nav>
<main>
{content}
</main>
</div>
</body>
</html>
"""


@dataclass(slots=True)
class Page:
    """A page, parsed. `path` is below docs/, with slashes."""

    path: str
    tokens: list[Token]
    titles: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    @property
    def title(self) -> str:
        return self.titles[0] if self.titles else self.path

    @property
    def target(self) -> str:
        """The path of the finished page."""
        made = PurePosixPath(self.path).with_suffix(".html")
        return str(made.with_name("index.html") if made.name == "README.html" else made)


class Site:
    """All pages, what is wrong with them, and which files they show."""

    def __init__(self, root: Path) -> None:
        self.root, self.docs = root, root / "docs"
        self.markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
        paths = sorted(self.docs.rglob("*.md"))
        self.pages = {page.path: page for page in map(self._parsed, paths)}
        self.problems: list[str] = []
        self.copies: dict[str, Path] = {}
        self._linked: set[str] = {INDEX}
        for page in self.pages.values():
            self._resolve(page)
        self._check_pages()

    def _parsed(self, path: Path) -> Page:
        tokens = self.markdown.parse(path.read_text(encoding="utf-8"))
        page = Page(path.relative_to(self.docs).as_posix(), tokens)
        for opening, inline in pairwise(tokens):
            if opening.type == "heading_open":
                text = text_of(inline)
                anchor = free_anchor(anchor_of(text), page.anchors)
                page.anchors.add(anchor)
                opening.attrSet("id", anchor)
                if opening.tag == "h1":
                    page.titles.append(text)
        return page

    def _resolve(self, page: Page) -> None:
        """Point every link and picture at the finished pages, and record those that lead nowhere."""
        for token in all_tokens(page.tokens):
            name = {"link_open": "href", "image": "src"}.get(token.type)
            if name is not None:
                written = str(token.attrGet(name) or "")
                token.attrSet(name, self._resolved(page, written))

    def _resolved(self, page: Page, written: str) -> str:
        parts = urlsplit(written)
        if parts.scheme or parts.netloc:
            return written
        if not parts.path:
            self._check_anchor(page, page, parts.fragment)
            return written
        file = (self.docs / page.path).parent.joinpath(unquote(parts.path)).resolve()
        if file.is_dir() and file.joinpath(INDEX).exists():
            file /= INDEX
        if not file.is_relative_to(self.root) or not file.is_file():
            self.problems.append(f"docs/{page.path}: {written} leads nowhere")
            return written
        return self._kept(page, file, parts.fragment)

    def _kept(self, page: Page, file: Path, fragment: str) -> str:
        """Returns the address of a file of the project in the finished pages."""
        is_inside = file.is_relative_to(self.docs)
        inside = file.relative_to(self.docs).as_posix() if is_inside else ""
        if inside in self.pages:
            other = self.pages[inside]
            if other is not page:
                self._linked.add(inside)
            self._check_anchor(page, other, fragment)
            goal = other.target + (f"#{fragment}" if fragment else "")
        else:
            goal = inside or f"{FILES}/{file.relative_to(self.root).as_posix()}"
            self.copies[goal] = file
        return up_from(page.target) + goal

    def _check_anchor(self, page: Page, other: Page, fragment: str) -> None:
        if fragment and fragment not in other.anchors:
            self.problems.append(f"docs/{page.path}: docs/{other.path} has no heading #{fragment}")

    def _check_pages(self) -> None:
        if INDEX not in self.pages:
            self.problems.append(f"docs/{INDEX} is missing: it is the first page")
        for page in self.pages.values():
            if len(page.titles) != 1:
                self.problems.append(f"docs/{page.path}: {len(page.titles)} titles, not one")
            if page.path not in self._linked:
                self.problems.append(f"docs/{page.path}: no page leads here")

    def navigation(self) -> list[tuple[str, list[Page]]]:
        """Returns the headings of the first page, and the pages in the lists and tables below each."""
        by_target = {page.target: page for page in self.pages.values()}
        found: list[tuple[str, list[Page]]] = []
        first = self.pages.get(INDEX)
        tokens = first.tokens if first is not None else []
        for opening, inline in pairwise(tokens):
            if opening.type == "heading_open" and opening.tag == "h2":
                found.append((text_of(inline), []))
            for token in inline.children or []:
                page = by_target.get(str(token.attrGet("href") or "").partition("#")[0])
                if found and page is not None and page not in found[-1][1]:
                    found[-1][1].append(page)
        return found

    def write(self, target: Path) -> None:
        if target.exists():
            shutil.rmtree(target)
        for page in self.pages.values():
            file = target / page.target
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._html(page), encoding="utf-8")
        for goal, source in self.copies.items():
            file = target / goal
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, file)
        target.joinpath("style.css").write_text(STYLE, encoding="utf-8")

    def _html(self, page: Page) -> str:
        content = self.markdown.renderer.render(page.tokens, self.markdown.options, {})
        return PAGE.format(
            title=html.escape(page.title),
            up=up_from(page.target),
            navigation=self._navigation_html(page),
            content=content,
        )

    def _navigation_html(self, here: Page) -> str:
        up = up_from(here.target)
        lines = [f'<a href="{up}index.html">Penstock</a>']
        for heading, pages in self.navigation():
            lines.append(f"<h2>{html.escape(heading)}</h2>\n<ul>")
            for page in pages:
                mark = ' aria-current="page"' if page is here else ""
                link = f'<a href="{up}{page.target}"{mark}>{html.escape(page.title)}</a>'
                lines.append(f"<li>{link}</li>")
            lines.append("</ul>")
        return "\n".join(lines)


def all_tokens(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from all_tokens(token.children or [])


def text_of(inline: Token) -> str:
    """Returns the text of a heading, without its marks."""
    return "".join(token.content for token in all_tokens(inline.children or []) if token.content)


def anchor_of(text: str) -> str:
    """Returns the anchor of a heading, as code hosts make it."""
    kept = re.sub(r"[^\w\- ]", "", text.lower())
    return kept.strip().replace(" ", "-")


def free_anchor(anchor: str, taken: set[str]) -> str:
    found, number = anchor, 0
    while found in taken:
        number += 1
        found = f"{anchor}-{number}"
    return found


def up_from(target: str) -> str:
    """Returns the relative path from a page to the folder of all pages."""
    return "../" * (len(PurePosixPath(target).parts) - 1)


def unused_pictures(site: Site) -> list[str]:
    """Returns pictures that no page shows, apart from the one of the README."""
    shown = set(site.copies.values())
    readme = site.root.joinpath(INDEX)
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    return [
        f"{file.relative_to(site.root).as_posix()}: no page shows it"
        for file in sorted(site.docs.rglob("*"))
        if file.suffix in PICTURES and file not in shown and file.name not in text
    ]


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    site = Site(ROOT)
    problems = site.problems + unused_pictures(site)
    print("\n".join(problems) if problems else f"{len(site.pages)} pages, every link is good")
    if not arguments and not problems:
        site.write(ROOT / "build" / "docs")
        print("written to build/docs/index.html")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
