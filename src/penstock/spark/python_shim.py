"""The Python that Spark's helper processes run: this one, behind a shim that drops Spark's zips from its path.

Spark puts `pyspark.zip` and py4j's zip first on the path of every process that it starts. Modules from a zip have no
byte code, so that each process compiles PySpark anew: 1.34 s of processor time instead of 0.42. Spark gives the process
that plans a stream 10 s to report, which a busy machine does not always have. The package that is installed is the same
PySpark, compiled.
"""

import hashlib
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from .java import cache_folder, replace_file

_SHIM = """\
#!/bin/sh
# Runs a Python for Spark, without Spark's zips on its path: the packages that are installed have byte code.
rest=$PYTHONPATH: kept=
while [ -n "$rest" ]; do
  one=${{rest%%:*}} rest=${{rest#*:}}
  case $one in
    */pyspark.zip | */py4j-*-src.zip | '') ;;
    *) kept=$kept:$one ;;
  esac
done
PYTHONPATH=${{kept#:}}
export PYTHONPATH
exec {python} "$@"
"""


def shim_of(python: str, environment: Mapping[str, str]) -> str:
    """Returns a program that runs this interpreter as Spark should, or the interpreter itself.

    That is so if PySpark is not installed as a package, but comes with a Spark of its own: then the zips are needed.
    """
    found = find_spec("pyspark")
    if found is None or not found.origin or not Path(found.origin).is_file():
        return python
    text = _SHIM.format(python=shlex.quote(python))
    name = f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    shim = cache_folder(environment) / name / "python"
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        replace_file(shim, text, mode=0o755)
    return str(shim)
