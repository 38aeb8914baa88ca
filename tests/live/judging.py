"""Compares what users saw of a damaged directory with what they were told before: nothing wrong, nothing unsaid."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .commands import Ended
from .file_faults import EMPTIED, OLDER, RECENT, REMOVED, Fault
from .furnished import TOKEN, Ledger, Place
from .observing import AFTERWARDS, Observation, Reading

_PARTITION = re.compile(r"topics/default/([^/]+)\.\d+/partition-(\d+)")
LOG, SNAPSHOT, INDEX = ".log", ".snapshot", "index"
# What nothing rests on: the broker makes it again, or never reads it.
_OF_NO_WEIGHT = re.compile(r"lock|admin\.key")


@dataclass
class Trial:
    """One start on a damaged directory. `seen` is None if the broker refused to start."""

    fault: Fault
    output: str
    exit_code: int | None
    seen: Observation | None
    verified: Ended
    # What a second start shows, after the first one was stopped; None if it was not tried, or refused.
    seen_again: Observation | None = None
    tokens_before: set[bytes] = field(default_factory=set)
    tokens_after: set[bytes] = field(default_factory=set)


@dataclass(frozen=True)
class Verdict:
    """`outcome` in a word or two, and every promise that was broken."""

    outcome: str
    problems: list[str]


def tokens_in(data: Path) -> set[bytes]:
    """The values of all messages that are somewhere in the files."""
    found: set[bytes] = set()
    for path in data.rglob("*"):
        if path.is_file():
            found.update(TOKEN.findall(path.read_bytes()))
    return found


@dataclass(frozen=True)
class Difference:
    """Something that users see and did not see before. `place` is None if it is not about one partition."""

    what: str
    place: Place | None = None


class Judge:
    """Knows what an undamaged start shows."""

    def __init__(
        self, ledger: Ledger, usual: Observation, directories: set[str], *, is_killed: bool
    ) -> None:
        self.ledger, self.usual, self.is_killed = ledger, usual, is_killed
        # Where each partition is.
        self.directories: dict[Place, str] = {}
        for one in directories:
            if found := _PARTITION.fullmatch(one):
                self.directories[found[1], int(found[2])] = one

    def judge(self, trial: Trial) -> Verdict:
        problems = [*self._deleted(trial)]
        if "Traceback" in trial.output:
            problems.append("a traceback in the log")
        if trial.seen is None:
            problems += self._of_refusal(trial)
            return Verdict("refused", problems)
        problems += self.wrong(trial.seen)
        if trial.seen_again is not None:
            problems += [f"at the second start {one}" for one in self.wrong(trial.seen_again)]
        differences = [*self._differences(trial.seen)]
        unsaid = [*self._unsaid(trial, differences)]
        if not unsaid:
            return Verdict(_outcome(trial, differences), problems)
        if self.cannot_know(trial.fault):
            return Verdict("not told, cannot be known", problems)
        return Verdict("NOT TOLD", problems + unsaid)

    def _deleted(self, trial: Trial) -> Iterator[str]:
        gone = trial.tokens_before - trial.tokens_after
        if gone:
            yield f"{len(gone)} messages are gone from the disk, such as {min(gone)!r}"

    def _of_refusal(self, trial: Trial) -> Iterator[str]:
        if not trial.exit_code or trial.exit_code < 0:
            yield f"it refused with exit code {trial.exit_code}"
        errors = [line for line in trial.output.splitlines() if line.startswith("Error:")]
        if len(errors) != 1:
            yield f"{len(errors)} lines say why it refused: {trial.output[-500:]!r}"
        elif not _is_named(trial.fault, errors[0]):
            yield f"the refusal names another file: {errors[0]}"
        if trial.verified.code == 0 and trial.fault.path.startswith(("meta", "topics")):
            yield f"it refuses, and penstock log verify finds nothing: {errors}"

    def wrong(self, seen: Observation) -> Iterator[str]:
        """What must not happen, reported or not."""
        if seen.is_open:
            yield "it answers without a key"
        for place, reading in seen.partitions.items():
            told = self.ledger.published.get(place, {})
            for offset, value in reading.values.items():
                if value in self.ledger.deleted_values:
                    yield f"{place} shows a deleted topic's {value[:30]}"
                elif value == AFTERWARDS:
                    continue
                elif offset not in told:
                    yield f"{place} has offset {offset}, which was never given: {value[:30]}"
                elif told[offset] != value:
                    yield f"{place} has {value[:30]} at {offset} instead of {told[offset][:30]}"
        for (topic, group), handed in seen.handed.items():
            for (number, offset), value in handed.items():
                told = self.ledger.published.get((topic, number), {})
                if told.get(offset) != value and value != AFTERWARDS:
                    yield f"{group} got {value[:30]} as {topic}/{number}/{offset}"
        for place, offset in seen.published.items():
            if offset == 0 and self.usual.published.get(place, 0) > 0:
                yield f"the offsets of {place} begin at 0 again"
            if offset in seen.partitions[place].values:
                yield f"{place} gave offset {offset} twice"

    def _differences(self, seen: Observation) -> Iterator[Difference]:
        usual = self.usual
        if seen.keys_refused != usual.keys_refused:
            yield Difference(f"{seen.keys_refused} keys are refused")
        for place, before in usual.partitions.items():
            now = seen.partitions.get(place)
            if now is None:
                yield Difference("the partition is not there", place)
            elif now != before and not _is_less_compacted(before, now):
                yield Difference(
                    f"reads differ: {_shown(now.errors) or _spans(before, now)}", place
                )
        for place in seen.partitions.keys() - usual.partitions.keys():
            yield Difference("a partition that was not there", place)
        for topic, before in usual.delayed.items():
            now = seen.delayed.get(topic, {})
            if topic in seen.delayed_errors:
                # All are listed or none: the answer names the partition that it stops at.
                error = seen.delayed_errors[topic]
                places = (place for place, one in self.directories.items() if one in error)
                yield Difference(f"delayed: {error[:200]}", next(places, (topic, 0)))
                continue
            for number, one in {*before.items()} ^ {*now.items()}:
                yield Difference(f"delayed {number[1]} differs: {one}", (topic, number[0]))
        yield from self._group_differences(seen)
        for place, offset in usual.published.items():
            if seen.published.get(place) != offset:
                found = seen.published.get(place, seen.refused.get(place, "nothing"))
                yield Difference(f"a publish gives {found} instead of {offset}", place)

    def _group_differences(self, seen: Observation) -> Iterator[Difference]:
        usual = self.usual
        for (topic, group), before in usual.handed.items():
            now = seen.handed.get((topic, group), {})
            for number, offset in sorted(now.keys() - before.keys()):
                if offset not in usual.partitions[topic, number].values:
                    continue  # Compaction had removed it.
                is_acked = (number, offset) in self.ledger.acked[topic, group]
                word = "acked and handed out again" if is_acked else "handed out early"
                yield Difference(f"{offset} was {word} by {group}", (topic, number))
            for number, offset in sorted(before.keys() - now.keys()):
                yield Difference(f"{offset} is not handed out to {group}", (topic, number))
        for (topic, group), before in usual.held.items():
            for number, offset in sorted(before ^ seen.held.get((topic, group), set())):
                yield Difference(f"the lease of {offset} by {group} differs", (topic, number))
        for (topic, group), before in usual.floors.items():
            now = seen.floors.get((topic, group), {})
            for number, _ in sorted({*before.items()} ^ {*now.items()}):
                yield Difference(f"the floor of {group} is {now.get(number)}", (topic, number))

    def _unsaid(self, trial: Trial, differences: list[Difference]) -> Iterator[str]:
        """Everything that is different, and the fault itself, has to be in the log, the metrics and the health."""
        seen, fault = trial.seen, trial.fault
        assert seen is not None
        if not fault.path.startswith(("meta", "topics")):
            # Keys and the audit log: whoever is refused because of them, the log says why.
            if (differences or not _may_be_silent(fault)) and not _is_named(fault, trial.output):
                what = differences[0].what if differences else "harmless"
                yield f"{what}; not told by the log"
            return
        for place in sorted({one.place for one in differences if one.place is not None}):
            story = next(one.what for one in differences if one.place == place)
            if silent := self._silent(trial, place):
                yield f"{self._directory(place)}: {story}; not told by {', '.join(silent)}"
        if not differences and not _may_be_silent(fault) and not _is_found_offline(trial):
            if not _is_named(fault, trial.output):
                yield "harmless; not told by the log"
            if not _is_named(fault, seen.told):
                yield "harmless; not told by /readyz?verbose"

    def _directory(self, place: Place) -> str:
        return self.directories.get(place, f"topics/default/{place[0]}.")

    def _silent(self, trial: Trial, place: Place) -> list[str]:
        """Who of those who should does not tell that a partition is not as it was."""
        seen, fault = trial.seen, trial.fault
        assert seen is not None
        names = [self._directory(place)]
        if not _PARTITION.match(fault.path):
            # What is wrong with the whole says it for all of its parts.
            names.append(fault.path)
        told = {
            "the log": any(name in trial.output for name in names),
            "/readyz?verbose": any(name in seen.told for name in names),
            "/metrics": bool(seen.found),
            "penstock log verify": trial.verified.code != 0 or self._is_as_killed(fault),
        }
        return [who for who, is_told in told.items() if not is_told]

    def _is_as_killed(self, fault: Fault) -> bool:
        """An end that the kill may have taken, as far as the log itself can tell; other logs show that it did not."""
        is_gone = fault.what in {REMOVED, EMPTIED}  # The log's own checkpoint names the file.
        return self.is_killed and fault.path.endswith(LOG) and fault.is_newest and not is_gone

    def cannot_know(self, fault: Fault) -> bool:
        """A part from a moment of a life that was killed: as far as the rest can tell, the kill came then."""
        return self.is_killed and fault.what == RECENT


def _outcome(trial: Trial, differences: list[Difference]) -> str:
    assert trial.seen is not None
    if not differences:
        if _is_named(trial.fault, trial.output):
            return "as before, told"
        return "as before, found by verify" if _is_found_offline(trial) else "as before"
    if "partition_faulty" in trial.seen.told:
        return "faulty"
    if any(one.startswith("penstock_damaged_batches_total") for one in trial.seen.found):
        return "damaged batch"
    return "loss told"


def _is_found_offline(trial: Trial) -> bool:
    """What a start does not read it cannot tell: old state, indexes that were not asked. A check of everything does."""
    path = trial.fault.path
    # The two files of an index are one.
    wanted = path.removesuffix("index").removesuffix("time") if "index" in path else path
    # What it cannot open at all it says in words.
    lines = (line for line in trial.verified.output.splitlines() if line.startswith("{"))
    found = map(json.loads, lines)
    return any(one["type"] == "problem" and f"/{wanted}" in one["file"] for one in found)


def _may_be_silent(fault: Fault) -> bool:
    """Nothing is different, and no start has to know: it was not there to be read, or need not be."""
    if fault.path.endswith(SNAPSHOT) and (fault.what == REMOVED or not fault.is_newest):
        return True
    if fault.path.endswith(INDEX) and fault.is_newest:
        return True  # The segment that is written to has none after a kill either.
    if fault.path.endswith(".journeys") and fault.what == REMOVED and fault.is_newest:
        return True  # A segment that is written to has none before its first snapshot.
    if fault.path.endswith("/settings"):
        return True  # Meta is what counts: the start writes it anew.
    is_copy = fault.what in {OLDER, RECENT}
    return is_copy or _OF_NO_WEIGHT.fullmatch(fault.path) is not None


def _is_named(fault: Fault, text: str) -> bool:
    """Whether a text names what was damaged: the file, its partition, or the log that it belongs to."""
    if found := _PARTITION.match(fault.path):
        return found[0] in text
    return (fault.path.partition("/")[0] if fault.path.startswith("meta/") else fault.path) in text


def _is_less_compacted(before: Reading, now: Reading) -> bool:
    """Whether nothing is missing, and some messages are there again that compaction had removed."""
    is_same_log = (before.start, before.end, now.errors) == (now.start, now.end, [])
    return is_same_log and before.values.items() < now.values.items()


def _shown(errors: list[str]) -> str:
    return errors[0][:200] if errors else ""


def _spans(before: Reading, now: Reading) -> str:
    def span(one: Reading) -> str:
        return f"[{one.start}, {one.end}) with {len(one.values)}"

    return f"{span(now)} instead of {span(before)}"
