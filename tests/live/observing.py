"""What a broker shows its users: all messages by position, all that its groups hand out, delays, keys, health."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from .commands import Broker
from .furnished import Ledger, Place

# What is published to see which offset comes next.
AFTERWARDS = "after the damage"
_POLLS_MAX = 30
_READS_MAX = 200
_SAMPLE = re.compile(r"^(penstock_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
# What a start found or met, as /metrics counts it.
FINDINGS = (
    "penstock_recovery_events",
    "penstock_faulty_partitions",
    "penstock_damaged_batches_total",
)


@dataclass
class Reading:
    """One partition, read by position from its start to its end."""

    start: int = 0
    end: int = 0
    values: dict[int, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass
class Observation:
    """Everything that was seen. Errors are the answers in words."""

    is_open: bool = False
    keys_refused: int = 0
    partitions: dict[Place, Reading] = field(default_factory=dict)
    handed: dict[tuple[str, str], dict[tuple[int, int], str]] = field(default_factory=dict)
    poll_errors: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    held: dict[tuple[str, str], set[tuple[int, int]]] = field(default_factory=dict)
    floors: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    delayed: dict[str, dict[tuple[int, int], tuple[str, str]]] = field(default_factory=dict)
    delayed_errors: dict[str, str] = field(default_factory=dict)
    published: dict[Place, int] = field(default_factory=dict)
    refused: dict[Place, str] = field(default_factory=dict)
    health: dict[str, Any] = field(default_factory=dict)
    findings: dict[str, float] = field(default_factory=dict)
    server_errors: list[str] = field(default_factory=list)

    @property
    def found(self) -> list[str]:
        """The metrics of findings that are not 0."""
        return [name for name, number in self.findings.items() if number]

    @property
    def told(self) -> str:
        """What `/readyz?verbose` lists of this start."""
        lists = {name: self.health.get(name) for name in ("recovery", "faulty", "damaged")}
        return json.dumps(lists)


class Observer:
    """Looks at a broker as its users do."""

    def __init__(self, broker: Broker, ledger: Ledger, groups: list[tuple[str, str]]) -> None:
        self.broker, self.ledger, self.groups = broker, ledger, groups
        self.seen = Observation()

    def observe(self) -> Observation:
        """All of it. Reading comes first: some damage is met by readers only, and health tells of it then."""
        seen, broker = self.seen, self.broker
        seen.is_open = broker.call("GET", "/topics", key="").status != 401
        used = [broker.call("GET", "/topics", key=one).status for one in self.ledger.keys]
        seen.keys_refused = sum(status != 200 for status in used)
        topics = self._get("/topics").get("topics", [])
        names = sorted(one if isinstance(one, str) else one["name"] for one in topics)
        for name in names:
            for number in range(self._partitions(name)):
                seen.partitions[name, number] = self._read(name, number)
            seen.delayed[name] = self._delayed(name)
        for topic, group in self.groups:
            self._see_group(topic, group)
        for topic, number in seen.partitions:
            self._publish(topic, number)
        seen.health = self._get("/readyz?verbose")
        metrics = broker.call("GET", "/metrics").body.decode()
        for name, labels, number in _SAMPLE.findall(metrics):
            if name in FINDINGS:
                seen.findings[f"{name} {labels}"] = float(number)
        return seen

    def _get(self, target: str) -> Any:
        reply = self.broker.call("GET", target)
        if reply.status >= 500:
            self.seen.server_errors.append(f"GET {target}: {_words(reply)}")
        return reply.json if reply.body else {}

    def _partitions(self, topic: str) -> int:
        found = self._get(f"/topics/{topic}")
        count = found.get("partitions", found.get("num_partitions", 0))
        return len(count) if isinstance(count, list) else int(count)

    def _read(self, topic: str, number: int) -> Reading:
        reading, offset = Reading(), None
        for _ in range(_READS_MAX):
            at = "" if offset is None else f"&offset={offset}"
            target = f"/topics/{topic}/partitions/{number}/messages?limit=500{at}"
            reply = self.broker.call("GET", target)
            if reply.status != 200:
                reading.errors.append(_words(reply))
                offset = reply.json.get("next_offset")
                if offset is None:
                    break
                continue
            page = reply.json
            reading.start, reading.end = page["earliest"], page["latest"]
            for message in page["messages"]:
                reading.values[message["offset"]] = message["value"]
            if page["next_offset"] >= page["latest"]:
                break
            offset = page["next_offset"]
        return reading

    def _delayed(self, topic: str) -> dict[tuple[int, int], tuple[str, str]]:
        reply = self.broker.call("GET", f"/topics/{topic}/delayed?limit=1000")
        if reply.status != 200:
            self.seen.delayed_errors[topic] = _words(reply)
            return {}
        return {
            (one["partition"], one["offset"]): (one["value"], one["deliver_at"])
            for one in reply.json["messages"]
        }

    def _see_group(self, topic: str, group: str) -> None:
        seen, place = self.seen, (topic, group)
        held = self._get(f"/groups/{group}/inflight?limit=1000").get("in_flight", [])
        seen.held[place] = {
            (one["partition"], one["offset"]) for one in held if one["topic"] == topic
        }
        floors = self._get(f"/groups/{group}/offsets").get("offsets", {})
        seen.floors[place] = {int(one): at for one, at in floors.get(topic, {}).items()}
        handed = seen.handed[place] = {}
        errors = seen.poll_errors[place] = []
        is_idle = False
        for _ in range(_POLLS_MAX):
            reply = self.broker.call("GET", f"/topics/{topic}/messages?group={group}&max=500")
            messages = reply.json.get("messages", []) if reply.status == 200 else []
            if reply.status != 200:
                errors.append(_words(reply))
            for one in messages:
                handed[one["partition"], one["offset"]] = one["value"]
            # A poll that fails or finds nothing twice will do so for ever.
            if is_idle and not messages:
                break
            is_idle = not messages

    def _publish(self, topic: str, number: int) -> None:
        message = {"value": AFTERWARDS, "partition": number}
        reply = self.broker.call(
            "POST", f"/topics/{topic}/messages", {"messages": [message], "acks": "all"}
        )
        results = reply.json.get("results") if reply.status == 200 else None
        if results and results[0].get("error") is None:
            self.seen.published[topic, number] = results[0]["offset"]
        else:
            self.seen.refused[topic, number] = _words(reply)


def _words(reply: Any) -> str:
    return f"{reply.status} {reply.body[:400].decode(errors='replace')}"
