"""Writes src/penstock/console/static/libraries: what the console needs from npm, each with its licence and hash.

    python tools/console_libraries.py             fetch with `npm pack`, compare with libraries.json, write
    python tools/console_libraries.py --accept    the same with new versions or files: write libraries.json, too

libraries.json says which files are taken of which version, and the SHA-256 of each as it is published and as it is
served. The two differ where a module imports another by its bare name, which a browser cannot find: the import is
rewritten to the file beside it. A file that does not have its hash is refused, and nothing is written.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ROOT / "src" / "penstock" / "console" / "static" / "libraries"
FACTS = LIBRARIES / "libraries.json"
BARE_IMPORTS = {b'from"preact"': b'from"./preact.js"'}


def fetched(package: str, version: str, folder: Path) -> Path:
    """The archive of a package, as its registry has it."""
    command = ["npm", "pack", f"{package}@{version}", "--silent", "--pack-destination", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - the words are from libraries.json
    return next(folder.glob(f"{package}-{version}.tgz"))


def served(published: bytes) -> bytes:
    """A file as browsers get it: without bare imports, and without the name of a map that is not here."""
    for bare, relative in BARE_IMPORTS.items():
        published = published.replace(bare, relative)
    lines = published.split(b"\n")
    return b"\n".join(line for line in lines if not line.startswith(b"//# sourceMappingURL="))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def problems_of(file: dict[str, Any], published: bytes) -> list[str]:
    """Which hashes of a file are not those of libraries.json."""
    found = {"published_sha256": sha256(published), "sha256": sha256(served(published))}
    return [f"{file['name']}: {key}" for key, value in found.items() if file.get(key) != value]


def main() -> None:
    is_accepted = "--accept" in sys.argv[1:]
    facts = json.loads(FACTS.read_text())
    contents: dict[str, bytes] = {}
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for library in facts["libraries"]:
            archive = fetched(library["package"], library["version"], Path(folder))
            with tarfile.open(archive) as packed:
                for file in library["files"]:
                    member = packed.extractfile(f"package/{file['from']}")
                    assert member is not None, f"{file['from']} is no file"
                    published = member.read()
                    problems += problems_of(file, published)
                    contents[file["name"]] = served(published)
                    file["published_sha256"] = sha256(published)
                    file["sha256"] = sha256(contents[file["name"]])
    if problems and not is_accepted:
        sys.exit(f"not as libraries.json says, and nothing was written: {', '.join(problems)}")
    for name, content in contents.items():
        (LIBRARIES / name).write_bytes(content)
    FACTS.write_text(json.dumps(facts, indent=2) + "\n")
    print(f"{len(contents)} files in {LIBRARIES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
