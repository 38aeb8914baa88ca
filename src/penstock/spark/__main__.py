"""`python -m penstock.spark` prints the environment that Spark's own programs need, for `eval` in a shell."""

import os
import shlex
import sys

from ..errors import PenstockError
from .session import prepare


def main() -> int:
    found = dict(os.environ)
    try:
        prepare(found)
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        sys.stdout.write(f"export {name}={shlex.quote(found[name])}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
