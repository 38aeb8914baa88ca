"""Measures the schema registry: comparisons next to Apache Avro's, and the longest that a hostile schema may take."""

import json
from importlib import import_module
from typing import Any

from penstock.errors import InvalidSchema
from penstock.schemas.avro import AvroSchema
from penstock.schemas.json_schema import JsonSchema

from .measure import Clock, Effort, best_ns
from .report import Case, CaseResult, Unit, on_ratio, on_value

FIELDS = 100
_US, _MS = 1e3, 1e6


def record(kind: str) -> str:
    """A record of many fields, each of which may be null."""
    fields = [
        {"name": f"field_{one}", "type": ["null", kind], "default": None} for one in range(FIELDS)
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def measure_avro(effort: Effort) -> CaseResult:
    """Measure whether a record reads one with narrower fields, both parsed before."""
    try:
        parse: Any = import_module("avro.schema").parse
        checker: Any = import_module("avro.compatibility").ReaderWriterCompatibilityChecker
    except ImportError:
        return CaseResult(None, missing=("avro",))

    reader, writer = AvroSchema(record("long")), AvroSchema(record("int"))
    theirs = [parse(record(kind)) for kind in ("long", "int")]
    found = best_ns(
        {
            "ours": lambda: reader.faults_reading(writer),
            "avro": lambda: checker().get_compatibility(*theirs),
        },
        effort,
    )
    return CaseResult(found["ours"] / _US, found["avro"] / _US, settings={"fields": FIELDS})


def measure_json(effort: Effort) -> CaseResult:
    """Measure whether an object takes all that one with narrower properties does."""

    def schema(kind: str) -> JsonSchema:
        properties = {f"field_{one}": {"type": kind} for one in range(FIELDS)}
        return JsonSchema(json.dumps({"type": "object", "properties": properties}))

    new, old = schema("number"), schema("integer")
    found = best_ns({"ours": lambda: new.faults_reading(old)}, effort)
    return CaseResult(found["ours"] / _US, settings={"fields": FIELDS})


def measure_hostile(effort: Effort) -> CaseResult:
    """Measure how soon schemas are refused that would take hours to compare."""
    unions = [
        [{"type": "record", "name": f"{p}{n}", "fields": []} for n in range(3000)] for p in "RS"
    ]
    first, second = (AvroSchema(json.dumps(one)) for one in unions)
    values: list[Any] = [{"enum": [*range(one, one + 300)]} for one in range(100)]
    old = JsonSchema(json.dumps({"anyOf": values}))
    new = JsonSchema(json.dumps({"anyOf": values, "title": "x"}))

    def refused(one: Any, other: Any) -> None:
        try:
            one.faults_reading(other)
        except InvalidSchema:
            return
        raise AssertionError("it was compared to the end")

    contenders = {
        "avro": lambda: refused(first, second),
        "json": lambda: refused(new, old),
    }
    found = best_ns(contenders, effort, clock=Clock.CPU)
    return CaseResult(max(found.values()) / _MS)


CASES = (
    Case(
        name="compare_avro",
        unit=Unit.US,
        measure=measure_avro,
        goal=on_ratio(">=1"),
        baseline="avro.compatibility",
    ),
    Case(name="compare_json", unit=Unit.US, measure=measure_json),
    Case(name="hostile", unit=Unit.MS, measure=measure_hostile, goal=on_value("<=2000")),
)
