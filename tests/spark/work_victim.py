"""A driver of work that dies at a point of its first round. Its JVM is that of the tests, and lives on.

work_victim.py BROKER TOPIC TO POINT GATEWAY_PORT GATEWAY_SECRET
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "pipelines"))

from killing import die
from victims import _attached

from penstock.client import Client
from penstock.spark import work


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

    Client.commit_stagings, Client.staging = dying_commit, dying_staging


def main(broker: str, topic: str, to: str, point: str, port: str, secret: str) -> None:
    spark = _attached(int(port), secret)
    arm(point)
    work(spark, topic, "g", lambda rows: rows.select("value"), to=to, url=broker)


if __name__ == "__main__":
    main(*sys.argv[1:])
