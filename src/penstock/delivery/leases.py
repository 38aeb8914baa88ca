"""The leases of a group on a partition: member, offsets and deadlines."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec
from pyroaring import BitMap64

from .records import ClaimKind


class Term(msgspec.Struct):
    """Offsets of a lease that share a deadline. Extending a part of them makes a second term."""

    deadline_ns: int
    duration_ms: int
    offsets: BitMap64


class Lease(msgspec.Struct):
    """The messages of one poll that are not answered."""

    number: int
    member: str
    at_ns: int
    terms: list[Term]

    def offsets(self) -> BitMap64:
        """Returns everything that is still held. Not to be changed."""
        if len(self.terms) == 1:
            return self.terms[0].offsets
        held = BitMap64()
        for term in self.terms:
            held |= term.offsets
        return held


TransactionId = tuple[int, int]
"""The id of a producer, and the number of its transaction."""


class Claim(msgspec.Struct):
    """Messages of a lease that a transaction has answered: they have no deadline, and no member may answer them."""

    kind: ClaimKind
    number: int
    member: str
    at_ns: int
    duration_ms: int
    offsets: BitMap64
    error: str = ""
    delay_ms: int = -1
    is_disowned: bool = False


class LateLease(NamedTuple):
    """Offsets of a lease whose deadline has passed."""

    lease: Lease
    offsets: BitMap64


_NOTHING = BitMap64()


@dataclass(slots=True)
class Leases:
    """All leases of one group on one partition, and when the next one is due."""

    by_number: dict[int, Lease] = field(default_factory=dict)
    in_flight: int = 0
    # By member; one that holds nothing is not in it.
    held_by: dict[str, int] = field(default_factory=dict)
    # Members that hold fewer than when the reader of this cleared it.
    lowered: set[str] = field(default_factory=set, compare=False)
    # Counted in `in_flight` and `held_by`, too; once, if several attempts of a named commit claim the same message.
    claims: dict[TransactionId, list[Claim]] = field(default_factory=dict)
    # All that is claimed; and what several attempts have claimed, perhaps none but one of them by now.
    _claimed: BitMap64 = field(default_factory=BitMap64)
    _shared: BitMap64 = field(default_factory=BitMap64)
    _deadlines: list[tuple[int, int]] = field(default_factory=list)

    def grant(self, number: int, member: str, at_ns: int, term: Term) -> None:
        """Add a new lease, or another term of a lease."""
        lease = self.by_number.get(number)
        if lease is None:
            lease = self.by_number[number] = Lease(number, member, at_ns, [])
        lease.terms.append(term)
        count = len(term.offsets)
        self.in_flight += count
        self.held_by[member] = self.held_by.get(member, 0) + count
        heappush(self._deadlines, (term.deadline_ns, number))

    def _count(self, member: str, change: int) -> None:
        self.in_flight += change
        if change < 0:
            self.lowered.add(member)
        held = self.held_by[member] = self.held_by.get(member, 0) + change
        if not held:
            del self.held_by[member]

    def take(self, number: int, offsets: BitMap64) -> Lease:
        """Remove offsets from a lease that holds them. Returns the lease."""
        lease, taken = self.by_number[number], 0
        left: list[Term] = []
        for term in lease.terms:
            before = len(term.offsets)
            term.offsets -= offsets
            taken += before - len(term.offsets)
            if term.offsets:
                left.append(term)
        lease.terms = left
        self._count(lease.member, -taken)
        if not left:
            del self.by_number[number]
        return lease

    def extend(self, number: int, term: Term) -> None:
        """Give offsets that a lease holds a new deadline."""
        lease = self.by_number[number]
        for other in lease.terms:
            other.offsets -= term.offsets
        lease.terms = [other for other in lease.terms if other.offsets]
        lease.terms.append(term)
        heappush(self._deadlines, (term.deadline_ns, number))

    def claim(self, transaction: TransactionId, claim: Claim) -> None:
        """Give offsets that no lease holds to a transaction; other attempts of its commit may have them, too."""
        again = claim.offsets & self._claimed
        self._count(claim.member, len(claim.offsets) - len(again))
        self._shared |= again
        self._claimed |= claim.offsets
        self.claims.setdefault(transaction, []).append(claim)

    def claimed(self) -> BitMap64:
        """Returns everything that belongs to a transaction. Not to be changed."""
        return self._claimed

    def claim_of(self, number: int, offsets: BitMap64) -> Claim | None:
        """Returns a claim on messages of a lease; None if no transaction has any of them."""
        for claims in self.claims.values():
            for one in claims:
                if one.number == number and one.offsets & offsets:
                    return one
        return None

    def end_claims(self, transaction: TransactionId, *, is_commit: bool) -> list[Claim]:
        """Forget what belongs to a transaction; returns it.

        What other attempts claim, too, is theirs after an abort, and theirs no more after a commit.
        """
        ended = self.claims.pop(transaction, [])
        for one in ended:
            if others := self._claimed_by_others(one.offsets & self._shared):
                if is_commit:
                    self._remove_claimed(others)
                else:
                    one.offsets -= others
            self._claimed -= one.offsets
            self._count(one.member, -len(one.offsets))
        return [one for one in ended if one.offsets]

    def _claimed_by_others(self, shared: BitMap64) -> BitMap64:
        """Of offsets that several attempts had claimed, those that some transaction still claims."""
        found = BitMap64()
        for claims in self.claims.values() if shared else ():
            for one in claims:
                found |= one.offsets & shared
        return found

    def drop_claimed(self, offsets: BitMap64) -> None:
        """Forget offsets that became finished in another way, whichever transaction claims them."""
        left = offsets & self._claimed
        for claims in [*self.claims.values()]:
            for one in claims:
                gone = one.offsets & left
                left -= gone
                self._count(one.member, -len(gone))
        self._remove_claimed(offsets)
        self._claimed -= offsets

    def _remove_claimed(self, offsets: BitMap64) -> None:
        for transaction, claims in [*self.claims.items()]:
            for one in claims:
                one.offsets -= offsets
            self.claims[transaction] = [one for one in claims if one.offsets]
            if not self.claims[transaction]:
                del self.claims[transaction]
        self._shared -= offsets

    def holding(self, number: int) -> BitMap64:
        """Returns what a lease still holds, nothing if it is over. Not to be changed."""
        lease = self.by_number.get(number)
        return _NOTHING if lease is None else lease.offsets()

    def next_late(self, now_ns: int) -> LateLease | None:
        """Returns the lease with the earliest deadline and its late offsets, or None if no deadline has passed."""
        if self.next_deadline_ns() > now_ns:
            return None
        lease = self.by_number[self._deadlines[0][1]]
        late = BitMap64()
        for term in lease.terms:
            if term.deadline_ns <= now_ns:
                late |= term.offsets
        return LateLease(lease, late)

    def next_deadline_ns(self) -> float:
        """Returns the earliest deadline, or infinity. Drops entries of leases that are over."""
        while self._deadlines:
            deadline_ns, number = self._deadlines[0]
            lease = self.by_number.get(number)
            for term in () if lease is None else lease.terms:
                if term.deadline_ns == deadline_ns:
                    return deadline_ns
            heappop(self._deadlines)
        return float("inf")
