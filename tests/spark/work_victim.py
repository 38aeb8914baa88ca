"""A driver of work that dies at a point of its first round. Its JVM is that of the tests, and lives on.

work_victim.py BROKER TOPIC TO POINT GATEWAY_PORT GATEWAY_SECRET ROUND [POISON]
"""

import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "pipelines"))

from killing import checked, die
from victims import _attached

from penstock.client import Client, Consumer
from penstock.spark import work, work_round
from penstock.spark.work_ahead import RoundsAhead


def arm(point: str) -> None:
    """Have this process die at a point of its first round; the commit that takes over a name lists no stagings."""
    commit, staging, nack = Client.commit_stagings, Client.staging, Consumer.nack
    run, begin = work_round.staged_by, RoundsAhead.begin

    def dying_commit(self: Any, *words: Any, **more: Any) -> Any:
        if not words[3] or point == "after a nack":
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

    def dying_run(job: Any) -> Any:
        if point == "while the job runs":
            Thread(target=die_beside, args=(job.sparkSession,), daemon=True).start()
        return run(job)

    def dying_nack(self: Any, *words: Any, **more: Any) -> None:
        nack(self, *words, **more)
        if point == "after a nack":
            self.flush()
            die()

    Client.commit_stagings, Client.staging = dying_commit, dying_staging
    RoundsAhead.begin, Consumer.nack = dying_begin, dying_nack  # type: ignore[method-assign]  # To die there.
    work_round.staged_by = dying_run


def die_beside(spark: Any) -> None:
    """Die when tasks of a job run."""
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveStageIds():
        Event().wait(0.001)
    die()


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
