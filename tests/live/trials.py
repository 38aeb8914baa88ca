"""Does one thing to a copy of a data directory, starts a broker on it, and judges what its users see."""

import json
import shutil
import signal
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from .commands import Broker, Commands
from .file_faults import Fault, Victim, kind_of
from .furnished import Furnished
from .judging import Judge, Trial, Verdict, tokens_in
from .observing import Observation, Observer

Groups = list[tuple[str, str]]


@dataclass
class Table:
    """Outcomes by ending, kind of file and fault, and what went wrong."""

    counts: dict[tuple[str, str, str], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    problems: list[str] = field(default_factory=list)

    def add(self, ending: str, kind: str, fault: Fault, verdict: Verdict) -> None:
        self.counts[ending, kind, fault.what][verdict.outcome] += 1
        self.problems += [f"{ending}: {kind}: {fault}: {one}" for one in verdict.problems]

    def write(self, name: str | None) -> None:
        """Append one JSON object for each row to a file, if one is named."""
        if not name:
            return
        with Path(name).open("a") as file:
            for (ending, kind, what), counts in sorted(self.counts.items()):
                row = {"ending": ending, "kind": kind, "fault": what, "outcomes": counts}
                file.write(json.dumps(row) + "\n")


class Trials:
    """One way in which a directory ended, and what an undamaged start on it shows."""

    def __init__(
        self, commands: Commands, furnished: Furnished, victim: Victim, ending: str, scratch: Path
    ) -> None:
        self.commands, self.furnished, self.victim = commands, furnished, victim
        self.ending, self.scratch = ending, scratch
        self.groups: Groups = sorted(furnished.ledger.acked)
        directories = {
            str(one.relative_to(victim.data))
            for one in (victim.data / "topics").rglob("partition-*")
        }
        usual = self.start(victim.data)
        assert usual.seen is not None, f"an undamaged start was refused: {usual.output}"
        self.judge = Judge(furnished.ledger, usual.seen, directories, is_killed=ending == "killed")
        self.usual = usual

    def start(self, source: Path) -> Trial:
        """A start on a copy of a directory as it is."""
        target = self.scratch / "copy"
        shutil.copytree(source, target)
        return self._run(Fault(".", "nothing"), target)

    def run(self, fault: Fault, *, is_repeated: bool) -> Verdict:
        """Damage a copy, start on it and judge; with `is_repeated` stop it in good order and start once more."""
        target = self.scratch / "damaged"
        self.victim.damage(fault, target)
        return self.judge.judge(self._run(fault, target, is_repeated=is_repeated))

    def _run(self, fault: Fault, data: Path, *, is_repeated: bool = False) -> Trial:
        verified = self.commands.run("log", "verify", "--json", str(data))
        before = tokens_in(data)
        broker, seen = self._look(data, signal.SIGTERM if is_repeated else signal.SIGKILL)
        again = self._look(data, signal.SIGKILL)[1] if is_repeated and seen is not None else None
        after = tokens_in(data)
        shutil.rmtree(data)
        return Trial(fault, broker.output, broker.exit_code, seen, verified, again, before, after)

    def _look(self, data: Path, ending: int) -> tuple[Broker, Observation | None]:
        seen: Observation | None = None
        with self.commands.broker(data, "--config", str(self.furnished.settings)) as broker:
            if broker.address:
                broker.key = self.furnished.admin_key
                seen = Observer(broker, self.furnished.ledger, self.groups).observe()
                broker.end(ending)
        return broker, seen

    def kind_of(self, fault: Fault) -> str:
        return kind_of(self.victim.data, fault.path)
