"""A driver of work that dies at a point of its first round. Its JVM is that of the tests, and lives on.

work_victim.py BROKER TOPIC TO POINT GATEWAY_PORT GATEWAY_SECRET ROUND [POISON]
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "pipelines"))

from killing import checked, die
from victims import _attached

from penstock.client import Client
from penstock.spark import work
from penstock.spark.work_ahead import RoundsAhead


def arm(point: str) -> None:
    """Have this process die at a point of its first commit; that which takes over a name lists no stagings."""
    commit, staging = Client.commit_stagings, Client.staging

    def dying_commit(self: Any, *words: Any, **more: Any) -> Any:
        if not words[3]:
            return commit(self, *words, **more)
        if point == "after the commit":
            commit(self, *words, **more)
        return die()

    def dying_staging(self: Any, *words: Any, **more: Any) -> Any:
        return die() if point == "after the job" else staging(self, *words, **more)

    def dying_begin(self: Any) -> None:
        begin(self)
        if point == "after the lease ahead":
            self.settle()
            die()

    Client.commit_stagings, Client.staging = dying_commit, dying_staging
    begin, RoundsAhead.begin = RoundsAhead.begin, dying_begin  # type: ignore[method-assign]  # To die there.


def main(
    broker: str,
    topic: str,
    to: str,
    point: str,
    port: str,
    secret: str,
    size: str,
    poison: str = "",
) -> None:
    spark = _attached(int(port), secret)
    arm(point)
    work(spark, topic, "g", checked(poison), to=to, url=broker, round_messages=int(size))


if __name__ == "__main__":
    main(*sys.argv[1:])
