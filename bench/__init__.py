"""Measures Penstock on this machine, as ratios to baselines and against written goals.

Beside the package and not in the wheel: users run `penstock bench`, which puts load on their own server. `BENCHES` is
the table of what can be run; a bench is a module with a tuple `CASES`, imported when it is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Case


# Where a child process has to start for `python -m bench.name` to be found.
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Bench:
    module: str
    summary: str


BENCHES: Mapping[str, Bench] = MappingProxyType(
    {
        "codec": Bench("bench.codec", "encode, check, decode and stamp batches in memory"),
        "log": Bench("bench.log", "append, read, look up, open and commit on this disk"),
        "embedded": Bench("bench.embedded", "a queue in the process, next to others"),
        "delivery": Bench("bench.delivery", "which member gets messages, when, and at what cost"),
        "broker": Bench("bench.broker", "the broker in a race against others, on loopback"),
        "server": Bench("bench.server", "the broker over HTTP, loaded from outside"),
        "replication": Bench(
            "bench.replication",
            "a broker with a standby beside one alone, and how fast it catches up",
        ),
        "starts": Bench(
            "bench.starts", "starts and stops of a broker with thousands of partitions"
        ),
        "transactions": Bench(
            "bench.transactions", "transactions beside plain publishes, and what they leave"
        ),
        "journeys": Bench("bench.journeys", "what journeys cost, and how soon one is told"),
        "console": Bench("bench.console", "the console in a browser, and what it costs the broker"),
        "schemas": Bench("bench.schemas", "schemas compared, and hostile ones refused"),
        "pipelines": Bench(
            "bench.pipelines", "a topic into a lake, and what is done with it, without Spark"
        ),
        "spark": Bench("bench.spark", "topics read by Spark, as tables and as streams"),
    }
)


def load_cases(name: str) -> tuple["Case", ...]:
    """Returns the cases of a bench, in the order in which they run."""
    cases: tuple[Case, ...] = import_module(BENCHES[name].module).CASES
    return cases
