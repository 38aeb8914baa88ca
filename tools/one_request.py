"""Judges that no request stops the others: the dearest requests of every way in, one at a time.

    python tools/one_request.py                                  everything, on a broker with 1,000 partitions
    python tools/one_request.py --port kafka --only Metadata     some, by words that their names begin with
    python tools/one_request.py --partitions 20 --groups 10 --messages 1000 --items 1000     small and quick

It starts a broker with keys on a directory of its own and fills it. Then each request is sent twice: made from the
types of commands, routes and Kafka's messages, as long and as deep as the bounds allow, answered or refused. Beside it
a client publishes every 10 ms, and another asks GET /livez. Told of each are its answer, its seconds, the longest wait
of those clients (and that of a bare echo in the same time, which is the machine's doing), how far the memory after the
second round is above that after the first, and commands that are still reachable in the broker when all is answered.

One line a request, or with --json one JSON object; at the end the ten dearest. Exit code 1 if a request misses a bound.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

# The benches lie beside tools.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.floors import echo_server
from dear.beside import Beside, Stalls, clients_beside
from dear.binary import binary_requests, settled
from dear.bombs import bombs
from dear.http import http_requests
from dear.kafka import kafka_requests
from dear.names import BESIDE, Names, Sizes, fill
from dear.requests import DearRequest
from dear.server import JudgedBroker, NotWell
from dear.wires import FrameWire

MIB = 1 << 20
ROUNDS = 2
# To delete a thousand partitions takes a while.
ADMIN_PATIENCE_S = 600.0
# A broker gives memory back, and ends what a client left open, a moment after the answer.
_SETTLE_S = 0.05
_HELD_TRIES = 20
# The walk that the broker began last for itself, which no client asked for.
_OWN = frozenset({"FinishTopics", "SweepDue"})
PORTS: Mapping[str, Callable[[Names], Iterable[DearRequest]]] = {
    "binary": binary_requests,
    "http": http_requests,
    "kafka": kafka_requests,
    "bombs": bombs,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a request has to keep to."""

    stall_ms: float = 100.0
    grown_bytes: int = 64 * MIB
    patience_s: float = 60.0


@dataclass(slots=True)
class Verdict:
    """What came of a request. `grown_bytes` is memory after the last round above that after the first."""

    request: str
    port: str
    family: str
    outcome: str = ""
    seconds: float = 0.0
    publish_ms: float = 0.0
    livez_ms: float = 0.0
    floor_ms: float = 0.0
    rss_bytes: int = 0
    grown_bytes: int = 0
    held: Mapping[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def stall_ms(self) -> float:
        return max(self.publish_ms, self.livez_ms)

    def take(self, stalls: Stalls) -> None:
        """A further round; of the stalls the worst counts, with what the machine did in that round."""
        if stalls.worst > self.stall_ms:
            self.publish_ms, self.livez_ms, self.floor_ms = stalls

    def judge(self, bounds: Bounds) -> None:
        if self.stall_ms > bounds.stall_ms + self.floor_ms:
            self.wrong.append(f"stalls others for {self.stall_ms:.0f} ms")
        if self.grown_bytes > bounds.grown_bytes:
            self.wrong.append(f"memory grows by {self.grown_bytes // MIB} MiB")
        if self.held:
            self.wrong.append(f"keeps {', '.join(self.held)}")
        if self.outcome == "silent":
            self.wrong.append(f"no answer in {bounds.patience_s:g} s")


class Judge:
    """A broker, the clients beside it, and what every request does to both."""

    def __init__(self, broker: JudgedBroker, sizes: Sizes, bounds: Bounds, role: str) -> None:
        self.broker, self.bounds, self._role = broker, bounds, role
        self.names = fill(broker.binary, broker.admin_key, sizes)
        self._stack = ExitStack()
        self._beside: Beside | None = None
        self._admin: FrameWire | None = None
        self._usual: Mapping[str, int] = {}

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def restart(self) -> None:
        """What is stored is opened anew: from here on only what requests leave is memory that grows."""
        self._stack.close()
        self.broker.stop()
        self.begin()

    def begin(self) -> None:
        """Start the broker, if it does not run, and the clients beside it."""
        broker, admin_key = self.broker, self.broker.admin_key
        broker.start()
        echo = self._stack.enter_context(echo_server())
        self._beside = self._stack.enter_context(
            clients_beside(broker.binary, broker.http, echo, admin_key, BESIDE)
        )
        self._admin = FrameWire(broker.binary, admin_key, ADMIN_PATIENCE_S)
        self._stack.callback(self._admin.close)
        self.names = fill(broker.binary, admin_key, self.names.sizes)
        self._usual = broker.commands_held(self.bounds.patience_s)

    def judged(self, request: DearRequest) -> Verdict:
        """Both rounds. A broker that leaves a request without an answer is killed and started anew."""
        verdict = Verdict(request.name, request.port, request.family)
        tracebacks = self.broker.tracebacks()
        try:
            resident = [self._round(request, verdict) for _ in range(ROUNDS)]
            verdict.rss_bytes = resident[-1]
            verdict.grown_bytes = resident[-1] - resident[0]
            verdict.held = self._held()
            if new := self.broker.tracebacks() - tracebacks:
                verdict.wrong.append(f"{new} tracebacks in the log")
            is_well = verdict.outcome != "silent"
        except NotWell as error:
            verdict.wrong.append(str(error))
            is_well = False
        if not is_well:
            # It may still be at work, which later requests are not to be blamed for.
            self._stack.close()
            self.broker.kill()
            self.begin()
        verdict.judge(self.bounds)
        if request.answers and verdict.outcome[:3] not in {*request.answers, "sil"}:
            verdict.wrong.append("an answer that is not documented")
        return verdict

    def _round(self, request: DearRequest, verdict: Verdict) -> int:
        """Send it once, and say how much memory the broker has afterwards."""
        beside = self._beside
        assert beside is not None, "it has begun"
        assert self._admin is not None, "it has begun"
        try:
            settled(self._admin, request, self.names)
        except (EOFError, TimeoutError):
            raise NotWell("its administrator is not answered") from None
        data = request.make()
        key = self.names.keys[request.role or self._role]
        patience_s = self.bounds.patience_s
        try:
            wire = request.connect(self.broker.binary, self.broker.http, key, patience_s)
        except (EOFError, OSError):
            raise NotWell("the broker takes no connection") from None
        beside.begin()
        began_s = time.monotonic()
        for _ in range(request.times):
            answer = wire.ask(data).answer
            # A client that was left without an answer once was left without one.
            verdict.outcome = "silent" if verdict.outcome == "silent" else answer
        verdict.seconds = max(verdict.seconds, time.monotonic() - began_s)
        verdict.take(beside.end(patience_s))
        wire.close()
        time.sleep(_SETTLE_S)
        return self.broker.resident_bytes()

    def _held(self) -> Mapping[str, int]:
        """Commands that are reachable when all is answered, and were not before; the broker's own come and go."""
        held: Mapping[str, int] = {}
        for _ in range(_HELD_TRIES):
            counts = self.broker.commands_held(self.bounds.patience_s)
            held = {
                name: count
                for name, count in counts.items()
                if count > self._usual.get(name, 0) and name not in _OWN
            }
            if not held:
                break
            time.sleep(_SETTLE_S)
        # What this one keeps is no fault of the next.
        self._usual = {**self._usual, **held}
        return held


def wanted(
    names: Names, ports: Sequence[str], families: Sequence[str], only: Sequence[str]
) -> Iterator[DearRequest]:
    """Requests of some ports and families whose names begin with one of some words; of all, if there is none."""
    for port in ports or PORTS:
        for request in PORTS[port](names):
            is_family = not families or request.family in families
            if is_family and (not only or request.name.startswith(tuple(only))):
                yield request


def line_of(verdict: Verdict) -> str:
    figures = (
        f"{verdict.seconds:8.2f} s {verdict.publish_ms:8.0f} {verdict.livez_ms:8.0f} "
        f"{verdict.floor_ms:6.0f} ms {verdict.grown_bytes / MIB:8.1f} MiB"
    )
    wrong = f"  <- {'; '.join(verdict.wrong)}" if verdict.wrong else ""
    name = f"{verdict.port} {verdict.request}"
    return f"{name[:72]:72} {verdict.outcome[:24]:24} {figures}{wrong}"


def show(verdicts: Sequence[Verdict]) -> None:
    print(
        f"\nThe ten dearest of {len(verdicts)}, {sum(bool(verdict.wrong) for verdict in verdicts)} wrong:"
    )
    for verdict in sorted(verdicts, key=lambda verdict: -verdict.stall_ms)[:10]:
        print(line_of(verdict))


@contextmanager
def judging(sizes: Sizes, bounds: Bounds, *, role: str = "admin") -> Iterator[Judge]:
    """A broker that is filled and has been started again, and its judge."""
    with tempfile.TemporaryDirectory(prefix="penstock-judge-") as directory:
        broker = JudgedBroker(Path(directory))
        try:
            tell("filling a broker")
            broker.start()
            with Judge(broker, sizes, bounds, role) as judge:
                tell("starting it again")
                judge.restart()
                yield judge
        finally:
            broker.kill()
            tell("")


def run(asked: argparse.Namespace) -> int:
    sizes = Sizes(asked.partitions, asked.groups, asked.messages, asked.items)
    bounds = Bounds(
        stall_ms=asked.stall_ms, grown_bytes=asked.grown_mib * MIB, patience_s=asked.patience
    )
    verdicts: list[Verdict] = []
    with judging(sizes, bounds, role=asked.key) as judge:
        try:
            for request in wanted(judge.names, asked.port, asked.family, asked.only):
                tell(f"{len(verdicts) + 1} {request}")
                verdict = judge.judged(request)
                verdicts.append(verdict)
                as_json = json.dumps({**asdict(verdict), "stall_ms": verdict.stall_ms})
                print(as_json if asked.json else line_of(verdict), flush=True)
        finally:
            if asked.log is not None:
                asked.log.write_bytes(judge.broker.log.read_bytes())
    if not asked.json:
        show(verdicts)
    return int(any(verdict.wrong for verdict in verdicts))


def tell(text: str) -> None:
    """Say on a terminal what is under way."""
    if sys.stderr.isatty():
        width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
        sys.stderr.flush()


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes, bounds = Sizes(), Bounds()
    parser.add_argument("--partitions", type=int, default=sizes.partitions, help="of all topics")
    parser.add_argument("--groups", type=int, default=sizes.groups)
    parser.add_argument("--messages", type=int, default=sizes.messages)
    parser.add_argument("--items", type=int, default=sizes.items, help="in the lists of a request")
    parser.add_argument("--port", action="append", choices=[*PORTS], default=[])
    parser.add_argument("--family", action="append", default=[], help="only these, such as groups")
    parser.add_argument("--only", action="append", default=[], help="names that begin so")
    parser.add_argument(
        "--key", default="admin", choices=("admin", "producer", "consumer", "readonly")
    )
    parser.add_argument("--stall-ms", type=float, default=bounds.stall_ms)
    parser.add_argument("--grown-mib", type=int, default=bounds.grown_bytes // MIB)
    parser.add_argument("--patience", type=float, default=bounds.patience_s, help="seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--log", type=Path, help="where the broker's log is copied to")
    return parser.parse_args(words)


def main() -> int:
    asked = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(asked)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
