"""Measures schemas: messages compared with them, schemas next to Apache Avro, and how long a hostile one takes."""

import json
from contextlib import ExitStack
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from penstock import Broker
from penstock.api.publish import PublishValues
from penstock.api.schemas import NewSchema
from penstock.config import Validation
from penstock.errors import InvalidSchema
from penstock.schemas.avro import AvroSchema
from penstock.schemas.json_schema import JsonSchema
from penstock.schemas.registry import Registry
from penstock.schemas.validation import Contents, bind, verdict_on

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


def document(number: int) -> bytes:
    """An order of about a kilobyte."""
    lines = [{"name": f"lamp {number} {one}" * 3, "count": one, "price": 9.5} for one in range(12)]
    return msgspec.json.encode({"id": number, "customer": "ann" * 10, "paid": True, "lines": lines})


ORDER = {
    "type": "object",
    "required": ["id", "lines"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "customer": {"type": "string", "maxLength": 100},
        "paid": {"type": "boolean"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "count": {"type": "integer"},
                    "price": {"type": "number"},
                },
            },
        },
    },
}
DOCUMENTS = 1000


def measure_validation(effort: Effort) -> CaseResult:
    """Measure messages that are compared with their schema, next to the libraries in one loop."""
    registry = Registry()
    new = NewSchema("JSON", json.dumps(ORDER))
    for record in registry.register("orders-value", new).records:
        registry.apply(record)
    binding = bind("orders", Validation.REJECT, ("", ""), registry)
    assert binding is not None
    documents = [document(number) for number in range(DOCUMENTS)]
    is_valid, decode = JsonSchema(new.text).validator.is_valid, msgspec.json.decode

    def ours() -> None:
        contents = Contents(None, documents)
        found = verdict_on(binding, contents, registry.read, is_each_answered=False)
        assert not found.count

    def libraries() -> None:
        for one in documents:
            assert is_valid(decode(one))

    found = best_ns({"ours": ours, "libraries": libraries}, effort)
    return CaseResult(
        found["ours"] / DOCUMENTS / _US,
        found["libraries"] / DOCUMENTS / _US,
        settings={"bytes": len(documents[0])},
    )


def measure_plain(effort: Effort) -> CaseResult:
    """Measure publishes to a topic without schemas, beside one that asks for them, next to a broker without any."""
    values = [b"x" * 100] * 100
    command = PublishValues("plain", values)
    with ExitStack() as stack:

        def broker() -> Broker:
            path = stack.enter_context(TemporaryDirectory())
            found = stack.enter_context(Broker(path, fsync="never"))
            # What is published is removed again, or the disk fills up.
            found.create_topic("plain", partitions=1, retention_bytes=1 << 26)
            return found

        bound, unbound = broker(), broker()
        bound.create_topic("asking", partitions=1, validation="reject")
        found = best_ns(
            {
                "bound": lambda: bound.driver.execute(command),
                "unbound": lambda: unbound.driver.execute(command),
            },
            effort,
        )
    return CaseResult(
        found["bound"] / _US, found["unbound"] / _US, settings={"messages": len(values)}
    )


CASES = (
    Case(
        name="validate_json",
        unit=Unit.US,
        measure=measure_validation,
        goal=on_ratio(">=0.8"),
        baseline="msgspec and jsonschema-rs in one loop",
    ),
    Case(
        name="plain_publish",
        unit=Unit.US,
        measure=measure_plain,
        goal=on_ratio(">=0.97"),
        baseline="no topic asks for schemas",
    ),
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
