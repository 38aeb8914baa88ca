"""Who leads. A node never begins to lead by itself: its peers grant it, the leader hands over, or a person says so.

After a start a node waits and asks its peer, or its two peers, again and again:

    a peer leads, in no earlier epoch than promised        this node follows it
    no peer leads, and this node led last                  this node claims the next epoch; granted, it leads again;
                                                           never if it has set a damaged log aside
    a peer knows a later epoch                             this node never claims: it waits until a peer leads
    too few peers answer (`_may_claim`)                    NOT_LEADER, until they do or a person runs `penstock promote`

Every epoch that a node leads in or promises to follow is in `cluster.json` before it acts on it. A leader that hears of
a later epoch, from whichever side, steps down at once. The very first leader is the node that a person starts without
--follow on a data directory that was in no cluster, once a peer answers that is in none either and follows, or at once
with --begin-cluster. Else a leader with a lost disk would begin another cluster while its standby is away.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import randbits

import msgspec

from ...errors import (
    Fenced,
    LeaderUnknown,
    NotLeader,
    PenstockError,
    Refused,
    Unavailable,
    Unreachable,
)
from ...replication.ballots import next_ballot, node_of
from ...replication.frames import LEVEL, Hello, LogFacts
from ...replication.reconcile import asked_min
from ...runtime.fatal import fatal_ends_process
from ..settings import Settings
from .cluster_file import ClusterFacts, new_cluster_id, read_facts, write_facts
from .first_start import IN_NO_CLUSTER, begin_cluster
from .link import ASK_S, FIRST_FRAME_S, Claim, Granted, Introduction, Link, dial
from .operator_requests import OPERATOR
from .peer_listener import PeerListener
from .peer_tls import peer_contexts, require_node
from .promotion import Asked, Nodes, Peer, Role

_ASK_AGAIN_S = 0.5
_NO_LEADER = "this node waits: its peer does not answer, or does not lead; see penstock promote"


ServeFollower = Callable[[Link, Introduction], Awaitable[None]]
Follow = Callable[[Link, Peer], Awaitable[None]]
# With the number of the node that is to lead; 0: any that has everything.
HandOver = Callable[[int], Awaitable[None]]
# The logs of this data directory, and whether none is known to lack what was there.
Survey = Callable[[], Awaitable[tuple[bool, Mapping[str, LogFacts]]]]


class Membership:
    """This node's place in its cluster. Belongs to the event loop."""

    def __init__(self, settings: Settings, data: Path, logger: logging.Logger) -> None:
        self.settings, self._data, self.logger = settings, data, logger
        self.node, self.cluster = settings.broker.node_id, settings.cluster
        self.facts = read_facts(data) or ClusterFacts("")
        self.role = Role.WAITING
        self.leader: Peer | None = None
        # Set whenever the role has changed.
        self.changed = asyncio.Event()
        # Where this node serves clients, once that is known.
        self.http = self.binary = ""
        # The phases put here what they do with a link.
        self.serve_follower: ServeFollower | None = None
        self.follow: Follow | None = None
        self.hand_over: HandOver | None = None
        self.survey: Survey | None = None
        # Told why, when this node leads no longer.
        self.on_stepped_down: Callable[[PenstockError], None] = lambda _error: None
        self.incarnation = randbits(62)
        # Of the data directory: what it is called, and the latest epoch in which any of its logs was written.
        self.disk_id = self.written_epoch = 0
        # Whether no log of it was set aside, because it was damaged, since it had everything.
        self.is_whole = True
        self.asked: Nodes = ()
        # The epoch whose leader has stopped and said that this node has everything; 0: none.
        self.handed_over_epoch = 0
        # Whether every other node follows this one.
        self.has_all: Callable[[], bool] = lambda: False
        self.status: Callable[[], dict[str, object]] = dict
        # Has the leader acknowledge without the others; None: this node does not lead, or opens its data.
        self.go_alone: Callable[[], Awaitable[None]] | None = None
        # What was cut from the logs of this node, or set aside, since the start.
        self.aside: Callable[[], list[str]] = list
        # Where lines for the audit log go; None: between two roles none is open, and lines wait for the next.
        self._write_audit: Callable[[str, str], None] | None = None
        self._unwritten: list[tuple[str, str]] = []
        contexts = peer_contexts(self.cluster)
        self._accepting: ssl.SSLContext | None = contexts[0] if contexts else None
        self._dialling: ssl.SSLContext | None = contexts[1] if contexts else None
        self._is_to_look = asyncio.Event()
        # Held by what begins to lead while it asks the peer: a promotion and a claim never do so at the same time.
        self.deciding = asyncio.Lock()
        # That with the leader, while one is followed.
        self._link: Link | None = None
        # By subject, the last line of the log about it.
        self._said: dict[str, str] = {}
        # Why this node cannot copy the leader; None: it copies it, or none answers.
        self.problem: PenstockError | None = None
        self._watching: asyncio.Task[None] | None = None
        self._listener = PeerListener(self)

    # The life of it.

    async def start(self, listener: socket.socket) -> None:
        """Listen for the peer, and decide a very first start. Refused: this node may not begin a cluster."""
        if self.begins:
            await begin_cluster(self)
        elif self.cluster.begin:
            self.logger.warning("cluster.begin is for the first start alone: take it out again")
        self._listener.start(listener, self._accepting)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    @property
    def begins(self) -> bool:
        """Whether this node is in no cluster, and is to be the first leader of one."""
        return not self.facts.cluster_id and not self.cluster.follow

    async def stop(self) -> None:
        await self._listener.stop()
        if self._watching is not None:
            self._watching.cancel()

    def _write(self, facts: ClusterFacts) -> None:
        assert facts.epoch >= self.facts.epoch, "a promise is never taken back"
        with fatal_ends_process():
            write_facts(self._data, facts)
        self.facts = facts

    def audit_to(self, write: Callable[[str, str], None] | None) -> None:
        """Write to this audit log from now on, and wait for nothing: each role has the file open by itself."""
        self._write_audit = write
        while write is not None and self._unwritten:
            write(*self._unwritten.pop(0))

    def audit(self, what: str, where: str) -> None:
        if self._write_audit is None:
            self._unwritten.append((what, where))
        else:
            self._write_audit(what, where)

    def _become(self, role: Role, leader: Peer | None = None) -> None:
        self.leader = leader
        if role is not self.role:
            self.role = role
            if role is Role.LEADING:
                self.problem = None
            if self.problem is None:
                # Else it tries to follow again and again, which was said once.
                self.logger.info("%s, epoch %d", role.value, self.facts.epoch)
            self.changed.set()

    @property
    def epoch(self) -> int:
        return self.facts.epoch

    def hello(self) -> Hello:
        """What this node says of itself at the begin of a stream."""
        return Hello(
            cluster_id=self.facts.cluster_id,
            node=self.node,
            incarnation=self.incarnation,
            disk_id=self.disk_id,
            level=LEVEL,
            epoch=self.facts.epoch,
            role="leader" if self.role is Role.LEADING else "follower",
            forced_epoch=self.facts.forced_epoch,
        )

    def refusal(self) -> NotLeader:
        """What clients are told while this node does not lead."""
        leader, epoch = self.leader, self.facts.epoch
        if leader is None:
            said = IN_NO_CLUSTER if self.begins else _NO_LEADER
            return LeaderUnknown(said, leader="", http="", epoch=epoch)
        said = f"this node copies another one, which leads: {leader.binary or leader.http}"
        return NotLeader(said, leader=leader.binary, http=leader.http, epoch=leader.epoch)

    # Asking the peer.

    def introduction(self, purpose: str = "ask") -> Introduction:
        facts = self.facts
        return Introduction(
            cluster=self.cluster.name,
            cluster_id=facts.cluster_id,
            node=self.node,
            epoch=facts.epoch,
            role=self.role.value,
            purpose=purpose,
            http=self.http,
            binary=self.binary,
            copies=self.copies,
            led=facts.led,
            forced_epoch=facts.forced_epoch,
            begins=self.begins,
        )

    async def dial(self, address: str, purpose: str) -> tuple[Link, Peer]:
        """A connection with a peer that is of this cluster, and who it is. Unreachable, Forbidden, Refused."""
        link = await dial(address, self._dialling)
        try:
            async with asyncio.timeout(FIRST_FRAME_S):
                link.send(self.introduction(purpose))
                told: Introduction = await link.expect(Introduction)
            self.check(told, link)
        except TimeoutError:
            link.close()
            raise Unreachable(address, "it does not say who it is") from None
        except BaseException:
            # Also when this node stops while it asks.
            link.close()
            raise
        link.introduced()
        return link, self.peer(told, link, address)

    def peer(self, told: Introduction, link: Link, address: str) -> Peer:
        http, binary = (one.replace("{host}", link.host) for one in (told.http, told.binary))
        return Peer(
            told.node,
            told.role,
            told.epoch,
            http,
            binary,
            told.copies,
            told.led,
            address,
            told.cluster_id,
            told.forced_epoch,
            told.begins,
        )

    def check(self, told: Introduction, link: Link) -> None:
        """Forbidden: the certificate is not that of the node. Refused: it is of another cluster, or has our number."""
        if self.cluster.is_tls:
            require_node(link.certificate, told.node, self.cluster.name)
        if told.cluster != self.cluster.name:
            raise Refused(f"it is of cluster {told.cluster[:40]!r}, not {self.cluster.name!r}")
        ours, theirs = self.facts.cluster_id, told.cluster_id
        if ours and theirs and ours != theirs and told.role != OPERATOR:
            raise Refused(
                f"it has data of another cluster ({theirs[:40]}, not {ours}): one of the two data directories is new "
                "or of another pair of nodes"
            )
        if told.node == self.node and told.role != OPERATOR:
            raise Refused(f"it has number {self.node}, as this node has: broker.node_id differs")

    async def ask(self, address: str) -> Peer:
        """Who a peer is. Unreachable: it has not said so within a second. Forbidden, Refused."""
        try:
            async with asyncio.timeout(ASK_S):
                link, peer = await self.dial(address, "ask")
        except TimeoutError:
            raise Unreachable(address, f"it has not said who it is within {ASK_S:g} s") from None
        link.close()
        return peer

    async def ask_all(self) -> dict[str, Peer | PenstockError]:
        """By address: each peer, or why it could not be asked. They are asked side by side."""
        addresses = self.cluster.addresses
        replies = await asyncio.gather(*map(self.ask, addresses), return_exceptions=True)
        answers: dict[str, Peer | PenstockError] = {}
        for address, reply in zip(addresses, replies, strict=True):
            if not isinstance(reply, Peer | PenstockError):
                raise AssertionError(f"{address} could not be asked") from reply
            answers[address] = reply
        return answers

    @property
    def silent_s(self) -> float:
        """For how long nothing was heard of the leader that this node follows; infinity without one."""
        return float("inf") if self._link is None else time.monotonic() - self._link.heard_at

    async def _watch(self) -> None:
        """Find out who leads, for as long as the process runs."""
        while True:
            try:
                await self._look()
            except PenstockError as error:
                self._note_failure(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(_ASK_AGAIN_S):
                    await self._is_to_look.wait()
            self._is_to_look.clear()

    def look(self) -> None:
        """Ask the peers now: this node has just become able to follow, or to be followed."""
        self._is_to_look.set()

    def _note_failure(self, error: PenstockError) -> None:
        """This node does not follow, or follows no longer. A leader that is away, or changes its role, is no problem of
        this node."""
        if isinstance(error, Unavailable) or error.code in {NotLeader.code, Fenced.code}:
            self.say("following", str(error))
        else:
            self.problem = error.fresh()
            self.say("problem", self.problem_text)

    def say(self, subject: str, text: str) -> None:
        """A peer that is away stays away for a while: one line is enough."""
        if text != self._said.get(subject, ""):
            self._said[subject] = text
            if text:
                self.logger.warning("%s", text)

    async def _answering(self) -> list[Peer]:
        """Those of the peers that answer."""
        answers = await self.ask_all()
        failed = [
            f"peer {address}: {error}"
            for address, error in answers.items()
            if isinstance(error, PenstockError)
        ]
        self.say("answers", "; ".join(failed))
        return [peer for peer in answers.values() if isinstance(peer, Peer)]

    async def _look(self) -> None:
        if self.role is Role.LEADING:
            if not self.has_all():
                # A peer that was promoted meanwhile, or has promised to follow one that was, says so.
                for peer in await self._answering():
                    self.heard(peer)
            return
        if self.begins:
            async with self.deciding:
                # A person may have promoted it meanwhile.
                if self.begins:
                    await begin_cluster(self)
            return
        peers = await self._answering()
        leaders = [one for one in peers if one.role == Role.LEADING.value]
        if leaders:
            leader = max(leaders, key=lambda one: one.epoch)
            if leader.epoch >= self.facts.epoch:
                await self._follow(leader.address)
            return
        async with self.deciding:
            # A person may have promoted this node while the peers were asked.
            if self.role is Role.WAITING and self._may_claim(peers):
                await self._claim(peers)

    def _may_claim(self, peers: Sequence[Peer]) -> bool:
        """Whether this node led last, and so many answer that a leader after it would be known to one of them."""
        if not self.facts.led or not self.is_whole:
            return False
        if any(one.epoch > self.facts.epoch and not self._is_own_claim(one.epoch) for one in peers):
            return False
        copies = min(self.facts.copies or self.cluster.copies, self.cluster.copies)
        return len(peers) >= max(1, asked_min(self.cluster.node_count, copies) - 1)

    def heard(self, peer: Peer) -> None:
        """Step down if another node leads in a later epoch, or has promised to follow one. A new leader that says so
        itself is followed at once."""
        if peer.epoch > self.facts.epoch:
            self.step_down(f"node {peer.node} knows epoch {peer.epoch}")
        followed_epoch = 0 if self.leader is None else self.leader.epoch
        if peer.role == Role.LEADING.value and not self.leads and peer.epoch > followed_epoch:
            if self._link is not None:
                self._link.close()
            self.look()

    def step_down(self, reason: str) -> None:
        """Lead no longer: what clients wait for is refused, and the peer is asked."""
        if self.role is Role.LEADING:
            self.logger.warning("this node leads no longer: %s", reason)
            self._become(Role.WAITING)
            self.on_stepped_down(self.refusal())

    def handed_over(self, copies: int) -> None:
        """The follower, with this cluster.min_isr, has everything and may lead: this node does not any more, nor
        claims to."""
        copies = min(copies, self.facts.copies)
        self._write(msgspec.structs.replace(self.facts, led=False, is_level=True, copies=copies))
        self._become(Role.WAITING)

    def take_hand_over(self, epoch: int) -> None:
        """The leader of an epoch has stopped, and this node has everything: it leads in the next."""
        if epoch == self.facts.epoch:
            self.lead(next_ballot(epoch, self.node))

    async def _follow(self, address: str) -> None:
        """Copy what the leader has until the connection ends, or this node is to lead."""
        if self.follow is None:
            return
        link, peer = await self.dial(address, "follow")
        try:
            if peer.role != Role.LEADING.value or peer.epoch < self.facts.epoch or self.leads:
                return
            self._promise(peer)
            self._link = link
            self._become(Role.FOLLOWING, peer)
            await self.follow(link, peer)
        finally:
            link.close()
            self._link = None
            if self.role is Role.FOLLOWING:
                self._become(Role.WAITING)

    def _promise(self, peer: Peer) -> None:
        leader = peer.cluster_id, peer.epoch, peer.copies
        self._write(self.facts.following(*leader, time.time_ns(), peer.forced_epoch))

    def leveled(self) -> None:
        """This node has everything that its leader had a moment ago."""
        self.problem = None
        self._said.clear()
        if not self.facts.is_level:
            self._write(msgspec.structs.replace(self.facts, is_level=True, heard_ns=time.time_ns()))

    def _is_own_claim(self, epoch: int) -> bool:
        """Whether a peer knows an epoch from a claim of this node that another peer did not grant."""
        return node_of(epoch) == self.node

    async def _claim(self, peers: Sequence[Peer]) -> None:
        """Lead again, if the peers write down that they follow nothing earlier."""
        highest = max(self.facts.epoch, *(one.epoch for one in peers))
        epoch = next_ballot(highest, self.node)
        for peer in peers:
            link, _ = await self.dial(peer.address, "ask")
            try:
                await self.granted(link, Claim(epoch, self.cluster.copies), peer.address)
            finally:
                link.close()
        if self.facts.led and self.role is Role.WAITING:
            self.lead(epoch, asked=[self.node, *(one.node for one in peers)])

    async def granted(self, link: Link, claim: Claim, address: str) -> Granted:
        try:
            link.send(claim)
            async with asyncio.timeout(FIRST_FRAME_S):
                granted: Granted = await link.expect(Granted)
                return granted
        except TimeoutError:
            raise Unreachable(address, "no answer to a claim") from None

    def lead(
        self, epoch: int, *, is_forced: bool = False, is_alone: bool = False, asked: Nodes = ()
    ) -> None:
        """Lead in a new epoch, which is written down first, and whether it is begun by force: nodes with another
        history go over to this one then, whatever they know to be committed. The nodes `asked` have promised it."""
        self._write(
            ClusterFacts(
                self.facts.cluster_id or new_cluster_id(),
                epoch,
                led=True,
                copies=1 if is_alone else self.cluster.copies,
                forced_epoch=epoch if is_forced else self.facts.forced_epoch,
                is_alone=is_alone,
            )
        )
        self.is_whole, self.asked = True, asked
        self._become(Role.LEADING)
        # The others hear of it.
        self.look()

    # What this node promises its peers.

    def _require_later(self, epoch: int) -> None:
        """Fenced: this one or a later one was promised, or this node leads."""
        if epoch <= self.facts.epoch or self.role is Role.LEADING:
            raise Fenced(epoch, promised=self.facts.epoch)

    async def promise_to(self, epoch: int) -> Asked:
        """Follow nothing before an epoch, durably, and find out what this node has then. Fenced, Unavailable."""
        self._require_later(epoch)
        if self.follow is None or self.survey is None:
            raise Unavailable("this node closes its data: try again in a moment")
        self._write(self.facts.promised(epoch))
        await self.leave_leader()
        is_whole, logs = await self.survey()
        facts = self.facts
        said = Granted(epoch, facts.leader_epoch, facts.is_level, facts.copies, is_whole)
        return Asked(self.node, "", said, logs)

    def grant(self, claim: Claim, told: Introduction) -> None:
        """Promise to follow nothing earlier. Fenced: something later was promised, or this node leads."""
        self._require_later(claim.epoch)
        if told.epoch < self.facts.epoch and node_of(self.facts.epoch) != told.node:
            # It led last once, and another may have led since.
            raise Fenced(told.epoch, promised=self.facts.epoch)
        self._write(self.facts.granted(claim.epoch, claim.copies, led_epoch=told.epoch))

    # What a person says.

    def require_leading(self) -> HandOver:
        """How this node hands over. NotLeader."""
        if self.role is not Role.LEADING or self.hand_over is None:
            raise self.refusal()
        return self.hand_over

    def report(self) -> dict[str, object]:
        """What `penstock standby status` shows."""
        facts, leader = self.facts, self.leader
        return {
            "node": self.node,
            "role": self.role.value,
            "epoch": facts.epoch,
            "cluster_id": facts.cluster_id,
            "min_isr": self.copies,
            "is_alone": self.leads and facts.is_alone,
            "leader": leader.binary if leader else (self.binary if self.leads else ""),
            "is_level": facts.is_level,
            "forced_epoch": facts.forced_epoch,
            "heard_ns": facts.heard_ns,
            "problem": self.problem_text,
            **self.status(),
            **({} if self.leads else {"set_aside_files": self.aside()}),
        }

    @property
    def problem_text(self) -> str:
        """Why this node cannot copy the leader, with its code; an empty string: nothing is known."""
        return f"{self.problem.code}: {self.problem}" if self.problem else ""

    @property
    def copies(self) -> int:
        """How many nodes confirm what this one acknowledges: cluster.min_isr, or 1 while it leads alone."""
        return 1 if self.leads and self.facts.is_alone else self.cluster.copies

    def acknowledge_alone(self, *, is_alone: bool) -> None:
        """The leader goes on without the others from now on, or waits for them again. What it acknowledges alone is a
        history of its own, as after a forced promotion."""
        self._write(self.facts.alone() if is_alone else self.facts.together(self.cluster.copies))

    def told_copies(self, copies: int) -> None:
        """The leader has changed how many nodes confirm, while this one follows it."""
        self._write(msgspec.structs.replace(self.facts, copies=copies))

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADING

    async def leave_leader(self) -> None:
        """The leader does not answer, although its connection is not known to be cut: nothing more is taken from it."""
        if self._link is not None:
            self._link.close()
        while self.role is Role.FOLLOWING:  # noqa: ASYNC110 - ends with the connection
            await asyncio.sleep(0.01)
