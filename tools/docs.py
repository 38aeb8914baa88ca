"""Builds docs/*.md to HTML pages with navigation, and checks every internal link and picture.

    python tools/docs.py            write build/docs; exit code 1 and one line for each problem if something is wrong
    python tools/docs.py --check    only check

Each page has the navigation, its contents, the page before and the one behind it; the search needs no server.

A problem is a link to a page, a heading, a file or a picture that is not there, a page without exactly one title, and a
page that no other page leads to. `docs/README.md` is the first page; the headings and links on it are the navigation.
Links to files of the project outside of docs/ are kept: the file is copied beside the pages.
"""

import html
import json
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

import api_reference

ROOT = Path(__file__).resolve().parent.parent
INDEX = "README.md"
PICTURES = {".svg", ".png"}
FILES = "files"

LOOKS = Path(__file__).with_name("docs_site")
# A fenced block with this word and the name of a module stands for the reference of that module.
_REFERENCE = re.compile(r"^```api\n(\S+)\n```$", re.MULTILINE)


@dataclass(slots=True)
class Page:
    """A page, parsed. `path` is below docs/, with slashes."""

    path: str
    tokens: list[Token]
    titles: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    headings: list[tuple[str, str, str]] = field(default_factory=list)  # tag, anchor, text

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
        tokens = self.markdown.parse(with_references(path.read_text(encoding="utf-8")))
        page = Page(path.relative_to(self.docs).as_posix(), tokens)
        for opening, inline in pairwise(tokens):
            if opening.type == "heading_open":
                text = text_of(inline)
                anchor = free_anchor(anchor_of(text), page.anchors)
                page.anchors.add(anchor)
                page.headings.append((opening.tag, anchor, text))
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

    def sequence(self) -> list[Page]:
        """Returns the pages in the order of reading: the navigation's, and behind the README of a folder its others."""
        listed = [page for _, pages in self.navigation() for page in pages]
        found = [self.pages[INDEX]] if INDEX in self.pages else []
        for page in listed:
            if page not in found:
                found.append(page)
            folder, _, name = page.path.rpartition("/")
            if folder and name == INDEX:
                inside = [one for one in self.pages.values() if one.path.startswith(f"{folder}/")]
                found += [one for one in inside if one not in listed and one not in found]
        return found

    def sections(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yields what can be found: page, its title, anchor, heading and text of each section."""
        for page in self.pages.values():
            anchor, heading, text = "", page.title, [""]
            for token in page.tokens:
                if token.type == "heading_open" and token.tag != "h1":
                    yield page.target, page.title, anchor, heading, " ".join(text)
                    anchor, heading, text = str(token.attrGet("id")), "", []
                elif token.type == "inline" and anchor and not heading:
                    heading = text_of(token)
                elif token.type in {"inline", "fence", "code_block"}:
                    text.append(text_of(token) if token.children else token.content)
            yield page.target, page.title, anchor, heading, " ".join(text)

    def write(self, target: Path) -> None:
        if target.exists():
            shutil.rmtree(target)
        template = LOOKS.joinpath("page.html").read_text(encoding="utf-8")
        for page in self.pages.values():
            file = target / page.target
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._html(page, template), encoding="utf-8")
        for goal, source in self.copies.items():
            file = target / goal
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, file)
        for name in ("style.css", "site.js"):
            shutil.copyfile(LOOKS / name, target / name)
        index = json.dumps(list(self.sections()), ensure_ascii=False, separators=(",", ":"))
        target.joinpath("search.js").write_text(f"searchIndex = {index};\n", encoding="utf-8")

    def _html(self, page: Page, template: str) -> str:
        return template.format(
            title=html.escape(page.title),
            up=up_from(page.target),
            navigation=self._navigation_html(page),
            content=self.markdown.renderer.render(page.tokens, self.markdown.options, {}),
            contents=contents_html(page),
            steps=self._steps_html(page),
        )

    def _steps_html(self, here: Page) -> str:
        """Returns links to the page before and the one behind."""
        pages = self.sequence()
        if here not in pages:
            return ""
        place, up = pages.index(here), up_from(here.target)
        links = []
        for word, mark, other in (
            ("prev", "\u2190 {}", place - 1),
            ("next", "{} \u2192", place + 1),
        ):
            if 0 <= other < len(pages):
                title = html.escape(mark.format(pages[other].title))
                links.append(f'<a rel="{word}" href="{up}{pages[other].target}">{title}</a>')
        return f'<div class="steps">{"".join(links)}</div>'

    def _navigation_html(self, here: Page) -> str:
        up = up_from(here.target)
        lines = []
        for heading, pages in self.navigation():
            lines.append(f"<h2>{html.escape(heading)}</h2>\n<ul>")
            for page in pages:
                mark = ' aria-current="page"' if page is here else ""
                link = f'<a href="{up}{page.target}"{mark}>{html.escape(page.title)}</a>'
                lines.append(f"<li>{link}</li>")
            lines.append("</ul>")
        return "\n".join(lines)


def with_references(text: str) -> str:
    """Returns the text of a page, with the reference of a module wherever a block `api` names one."""
    return _REFERENCE.sub(lambda match: api_reference.markdown(match[1]), text)


def contents_html(page: Page) -> str:
    """Returns the headings of a page as links; nothing for a page with fewer than two."""
    lines = [
        f'<li class="{tag}"><a href="#{anchor}">{html.escape(text)}</a></li>'
        for tag, anchor, text in page.headings
        if tag in {"h2", "h3"}
    ]
    return "\n".join(["<h2>On this page</h2>\n<ul>", *lines, "</ul>"]) if len(lines) > 1 else ""


def all_tokens(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from all_tokens(token.children or [])


def text_of(inline: Token) -> str:
    """Returns the text of a heading or a paragraph, without its marks."""
    tokens = all_tokens(inline.children or [])
    return "".join(" " if one.type == "softbreak" else one.content for one in tokens)


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
