"""A registrant: it registers schemas and deletes them, and checks the registry at every start."""

from dataclasses import dataclass, field
from random import Random

from ..api.schemas import (
    DeleteSubject,
    DeleteVersion,
    NewSchema,
    RegisterSchema,
)
from ..broker.node import Node
from ..errors import Unavailable
from .client import WorldView
from .driver import SimDriver
from .violation import Checker, Violation

_SUBJECTS = ("orders-value", "orders-key", "bills-value")
_TEXTS = tuple(f'{{"type": "string", "doc": "{number}"}}' for number in range(8))


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A version as the node answered it."""

    schema_id: int
    is_deleted: bool = False


@dataclass(slots=True, eq=False)
class SchemaRegistrant:
    """Knows which versions there must be. `unsure` are the subjects whose change a crash interrupted."""

    name: str
    world: WorldView
    # Its own, so that other clients act as they would without it.
    entropy: Random
    subjects: dict[str, dict[int, KnownVersion]] = field(default_factory=dict)
    # The texts of all ids that were ever answered: none of them is given to another schema.
    texts: dict[int, str] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)

    def wake(self) -> None:
        self.world.wake_later(700, self)
        driver = self.world.driver
        if driver is not None:
            subject = min(self.unsure, default="") or self.entropy.choice(_SUBJECTS)
            event = self.world.new_event(f"{self.name} changes subject {subject}")
            self.world.act(event, lambda: self._change(driver, subject))

    def _change(self, driver: SimDriver, subject: str) -> None:
        if subject in self.unsure:
            self._look(driver.node, subject)
        self.unsure.add(subject)
        known = self.subjects.setdefault(subject, {})
        live = [number for number, one in known.items() if not one.is_deleted]
        try:
            if not known or (live and self.entropy.random() < 0.6):
                self._register(driver, subject, self.entropy.choice(_TEXTS))
            elif not live:
                driver.execute(DeleteSubject(subject, permanent=True))
                known.clear()
            elif self.entropy.random() < 0.7:
                number = self.entropy.choice(live)
                driver.execute(DeleteVersion(subject, number))
                known[number] = KnownVersion(known[number].schema_id, is_deleted=True)
            else:
                driver.execute(DeleteSubject(subject))
                known.update({one: KnownVersion(known[one].schema_id, True) for one in live})
        except Unavailable as error:
            self.world.note(f"put off: {error.code}")
        self.unsure.discard(subject)

    def _register(self, driver: SimDriver, subject: str, text: str) -> None:
        before = self._ids_of(text, subject)
        command = RegisterSchema(subject, NewSchema("AVRO", text))
        found, again = driver.execute(command), driver.execute(command)
        schema_id = found.schema.schema_id
        if (again.version, again.schema.schema_id) != (found.version, schema_id):
            raise Violation(
                Checker.SCHEMAS, f"registered twice: {schema_id}, {again.schema.schema_id}"
            )
        if before and schema_id not in before:
            raise Violation(Checker.SCHEMAS, f"a schema with id {before} got {schema_id}")
        if self.texts.get(schema_id, text) != text:
            raise Violation(Checker.SCHEMAS, f"id {schema_id} was given to another schema before")
        if not (before or self.unsure - {subject}) and schema_id in self.texts:
            raise Violation(Checker.SCHEMAS, f"id {schema_id} of a deleted schema was given again")
        self.texts[schema_id] = text
        self.subjects[subject][found.version] = KnownVersion(schema_id)

    def _ids_of(self, text: str, changed: str) -> set[int]:
        """The ids that a schema has in versions that are there for sure, deleted ones included."""
        return {
            one.schema_id
            for subject, versions in self.subjects.items()
            if subject == changed or subject not in self.unsure
            for one in versions.values()
            if self.texts[one.schema_id] == text
        }

    def _look(self, node: Node, subject: str) -> None:
        """Take over what the node has of a subject whose change was interrupted."""
        found = node.schemas.subjects.get(subject, {})
        self.subjects[subject] = {
            one.version: KnownVersion(one.schema_id, one.is_deleted) for one in found.values()
        }
        for one in found.values():
            text = node.schemas.schemas[one.schema_id].text
            if self.texts.setdefault(one.schema_id, text) != text:
                raise Violation(Checker.SCHEMAS, f"id {one.schema_id} has another schema")
        self.unsure.discard(subject)

    def check(self, node: Node, *, is_forgiven: bool) -> None:
        """Violation: a node that has just started does not have the versions as it acknowledged them."""
        if is_forgiven:
            # The disk has lied, so acknowledged versions may be lost, and their ids given again.
            self.texts.clear()
            self.subjects.clear()
            self.unsure.update(_SUBJECTS)
        for subject, versions in self.subjects.items():
            if subject in self.unsure:
                continue
            found = {
                one.version: KnownVersion(one.schema_id, one.is_deleted)
                for one in node.schemas.subjects.get(subject, {}).values()
            }
            if found != versions:
                raise Violation(Checker.SCHEMAS, f"{subject} has {found}, and should {versions}")
            for one in versions.values():
                if node.schemas.schema(one.schema_id).text != self.texts[one.schema_id]:
                    raise Violation(Checker.SCHEMAS, f"id {one.schema_id} has another schema")
        if node.schemas.next_id <= max(self.texts, default=0):
            raise Violation(Checker.SCHEMAS, f"id {node.schemas.next_id} would be given again")
