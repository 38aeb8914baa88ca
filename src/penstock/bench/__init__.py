"""Bench: what Penstock costs here, as ratios to something known and against written goals.

Measures and reports; it is never imported by the product. `BENCHES` is the table of what can be run; a
bench is a module with a tuple `CASES`, imported when it is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Case


@dataclass(frozen=True, slots=True)
class Bench:
    module: str
    summary: str


BENCHES: Mapping[str, Bench] = MappingProxyType(
    {
        "codec": Bench("penstock.bench.codec", "encode, check, decode and stamp batches in memory"),
        "log": Bench("penstock.bench.log", "append, read, look up, open and commit on this disk"),
        "embedded": Bench("penstock.bench.embedded", "a queue in the process, next to others"),
        "delivery": Bench("penstock.bench.delivery", "who gets messages, when, and at what cost"),
        "broker": Bench(
            "penstock.bench.broker", "the broker in a race against others, on loopback"
        ),
        "server": Bench("penstock.bench.server", "the broker over HTTP, loaded from outside"),
        "spark": Bench("penstock.bench.spark", "topics read by Spark, as tables and as streams"),
    }
)


def load_cases(name: str) -> tuple["Case", ...]:
    """The cases of a bench, in the order in which they run."""
    cases: tuple[Case, ...] = import_module(BENCHES[name].module).CASES
    return cases
