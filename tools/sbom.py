"""Writes the bill of materials of a broker as CycloneDX JSON, from a lock file. Standard library only.

    python tools/sbom.py > penstock.cdx.json                    what a broker needs: requirements-small.lock
    python tools/sbom.py requirements.lock > all.cdx.json       what the project needs

The same lock file gives the same bytes: there is no time in it, and the serial number follows from the content.
"""

import json
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

ROOT = Path(__file__).resolve().parent.parent
USUAL = ROOT / "requirements-small.lock"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)\s*(?:;\s*([^\\]*?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"^    #(?: via |   )([A-Za-z0-9][A-Za-z0-9._-]*)(?: \(.*\))?$")
# What says nothing about a package: the head of a list, and another file that held the version down.
_SILENT = re.compile(r"^\s*(?:# via|#   -c \S+|)$")


@dataclass(slots=True)
class Package:
    """A pinned package, and the packages that asked for it."""

    name: str
    version: str
    marker: str
    hashes: list[str] = field(default_factory=list)
    asked_by: list[str] = field(default_factory=list)

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def packages(lock: str) -> list[Package]:
    """Returns the packages of a lock file. ValueError for a line that is none of what such a file has."""
    found: list[Package] = []
    for line in lock.splitlines():
        if pinned := _PINNED.match(line):
            found.append(Package(pinned[1].lower(), pinned[2], pinned[3] or ""))
        elif hashed := _HASH.search(line):
            found[-1].hashes.append(hashed[1])
        elif via := _VIA.match(line):
            found[-1].asked_by.append(via[1].lower())
        elif not _SILENT.match(line):
            raise ValueError(f"not a line of a lock file: {line[:80]!r}")
    return found


def bill(project: dict[str, Any], pinned: list[Package]) -> dict[str, Any]:
    """Returns the document: a component for each package, and which of them needs which."""
    name = project["name"]
    root = {
        "type": "application",
        "bom-ref": f"pkg:pypi/{name}@{project['version']}",
        "name": name,
        "version": project["version"],
        "purl": f"pkg:pypi/{name}@{project['version']}",
        "licenses": [{"expression": project["license"]}],
    }
    references = {name: [root["bom-ref"]]}
    for one in pinned:
        references.setdefault(one.name, []).append(one.purl)
    needs: dict[str, list[str]] = {ref: [] for refs in references.values() for ref in refs}
    for one in pinned:
        for asker in one.asked_by:
            for reference in references[asker]:
                needs[reference].append(one.purl)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": [_component(one) for one in pinned],
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(on)} for ref, on in sorted(needs.items())
        ],
    }
    content = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, content)}"}


def _component(one: Package) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        "hashes": [{"alg": "SHA-256", "content": text} for text in one.hashes],
    }
    if one.marker:
        component["properties"] = [{"name": "penstock:marker", "value": one.marker}]
    return component


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 2
    lock = Path(arguments[0]) if arguments else USUAL
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    document = bill(project, packages(lock.read_text(encoding="utf-8")))
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
