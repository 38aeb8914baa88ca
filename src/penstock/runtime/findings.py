"""Tells the log of a process what a start found and did, which damage was met since, and what cannot be done now."""

from collections.abc import Callable
from itertools import islice

from ..api.health import Damage, RecoveryEvent
from ..broker.node import Node
from ..broker.partition import Now
from ..broker.partition.damage import DamageLedger, Skip
from ..broker.validation import ViolationLedger
from ..config import StorageConfig, Validation
from ..errors import PenstockError, SchemaViolation
from ..ports import Disk
from ..schemas.subjects import names_context
from .world import World
from .zones import SystemZones

_QUIET_NS = 10_000_000_000
_QUIET_TOPICS_MAX = 1000
_SUBJECTS_TOLD_MAX = 10
_HINDERED_NS = 60_000_000_000


class FindingsLog:
    """Belongs to a driver, and opens its nodes. `on_skipped` is called after each skip is recorded."""

    def __init__(self, world: World, *, on_skipped: Callable[[], object]) -> None:
        self._world, self._logger, self._on_skipped = world, world.logger, on_skipped
        self._told: dict[RecoveryEvent, None] = {}
        self.damage = DamageLedger()
        self.damage.on_found, self.damage.on_skipped = self._damaged, self._skipped
        self._violations = ViolationLedger()
        self._violations.on_found = self._violated
        # Of a topic: when its log line was last written, and how many messages did not fit since then.
        self._quiet: dict[str, tuple[int, int]] = {}
        # When it was last said of something that it cannot be done.
        self._hindered: dict[tuple[str, str], int] = {}

    def open_node(
        self,
        disk: Disk,
        now: Now,
        config: StorageConfig,
        *,
        usual_sweep_times: int = 1,
        is_firing: bool = True,
    ) -> Node:
        """A node; what its opening found and did is logged. One that is opened again lists that of the first, too."""
        node = Node(
            disk,
            now=now,
            entropy=self._world.entropy,
            limits=self._world.limits,
            config=self._world.config,
            min_free_bytes=config.min_free_bytes,
            cache_bytes=config.cache_bytes,
            damage=self.damage,
            usual_sweep_times=usual_sweep_times,
            is_firing=is_firing,
            observer=self._world.observer,
            violations=self._violations,
            zones=SystemZones(),
            reign=self._world.reign,
            progress=self._world.progress,
        )
        for event in node.recovery:
            if event not in self._told:
                self._told[event] = None
                tell = self._logger.error if event.is_damage else self._logger.warning
                tell("start: %s", _event_text(event))
        node.recovery[:] = self._told
        for subject in islice(filter(names_context, node.schemas.subjects), _SUBJECTS_TOLD_MAX):
            self._logger.warning(
                "start: subject %s is a plain name here, where Confluent's clients mean a context: "
                "register its schemas under another name",
                subject,
            )
        guard = node.guard
        guard.on_turn = lambda *room: self._disk_turned(*room, is_refusing=guard.is_refusing)
        return node

    def _disk_turned(self, free_bytes: int, least_bytes: int, *, is_refusing: bool) -> None:
        self._logger.warning(
            "new messages are %s: the disk has %d bytes left, and storage.min_free_bytes is %d",
            "refused" if is_refusing else "taken again",
            free_bytes,
            least_bytes,
        )

    def hindered(self, what: str, error: PenstockError) -> None:
        """Something cannot be done now, and is tried again and again: of each reason there is one line a minute."""
        now_ns, kind = self._world.clock.monotonic_ns(), (what, error.code)
        if now_ns - self._hindered.get(kind, -_HINDERED_NS) >= _HINDERED_NS:
            self._hindered[kind] = now_ns
            self._logger.warning("%s: %s", what, error)

    def _damaged(self, found: Damage) -> None:
        self._logger.error(
            "damaged batch in %s at byte %d: %s of topic %s partition %d cannot be read: %s",
            found.path,
            found.position,
            _offsets_text(found.offset, found.next_offset),
            found.topic,
            found.partition,
            found.reason,
        )

    def _skipped(self, skip: Skip) -> None:
        self._logger.warning(
            "group %s skipped %d messages of topic %s partition %d, %s, because on_damage is skip: %s",
            skip.group,
            skip.messages,
            skip.topic,
            skip.partition,
            _offsets_text(skip.offset, skip.next_offset),
            skip.reason,
        )
        self._on_skipped()

    def _violated(self, first: SchemaViolation, count: int, validation: Validation) -> None:
        """A producer that does nothing else must not fill the log: a topic has one line in so many seconds."""
        topic, now_ns = str(first.fields["topic"]), self._world.clock.monotonic_ns()
        last_ns, before = self._quiet.get(topic, (-_QUIET_NS, 0))
        if now_ns - last_ns < _QUIET_NS:
            self._quiet[topic] = last_ns, before + count
            return
        if len(self._quiet) >= _QUIET_TOPICS_MAX:
            self._quiet.clear()
        self._quiet[topic] = now_ns, 0
        self._logger.warning(
            "topic %s: %d messages do not fit and were %s, such as this one: %s",
            topic,
            before + count,
            "refused" if validation is Validation.REJECT else "stored",
            first,
        )


def _event_text(event: RecoveryEvent) -> str:
    place = f" at byte {event.position}" if event.position else ""
    size = f", {event.size_bytes} bytes" if event.size_bytes else ""
    whose = f", topic {event.topic} partition {event.partition}" if event.topic else ""
    return f"{event.kind.value} {event.path}{place}{size}{whose}: {event.reason}"


def _offsets_text(first: int | None, following: int | None) -> str:
    if first is None or following is None:
        return "some offsets"
    return f"offset {first}" if following == first + 1 else f"offsets {first} to {following - 1}"
