"""Our place in a group: joined, kept by heartbeats, handed over in parts, lost and taken again."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ...errors import PenstockError, StaleGeneration, Unavailable, UnknownMember
from ..ack_batcher import Delivered
from ..consumer_options import ConsumerSettings, PartitionsTold
from ..leased_messages import Polled
from ..membership import Joining, Membership
from ..membership import heartbeat as heartbeat_call
from ..membership import join as join_call
from ..membership import leave as leave_call
from ..membership import revoke as revoke_call
from .io import call_back
from .pool import AsyncPool


class MembershipChange(NamedTuple):
    """What has to be let go of, what is gone already, and whether we have just joined anew."""

    to_release: list[str]
    lost: list[str]
    is_rejoined: bool = False


class AsyncMember:
    """Everything but `beat` and `note` belongs to whoever polls; callbacks are called from there and nowhere else."""

    def __init__(self, pool: AsyncPool, settings: ConsumerSettings, joining: Joining) -> None:
        self._pool, self._settings, self._joining = pool, settings, joining
        self.who = Membership(joining.group, joining.member, 0)
        # What the program was told to be its own, and what of that is asked back.
        self.assigned: set[str] = set()
        self._asked: set[str] = set()
        self.has_changes = False
        self._is_unknown = False
        self._trouble: PenstockError | None = None

    @property
    def is_revoking(self) -> bool:
        return bool(self._asked)

    async def join(self) -> None:
        joined = await self._pool.run(join_call(self._joining))
        self.who = Membership(self.who.group, joined.member_id, joined.generation)
        # From now on it is the same member that comes again, with what it has in its hands.
        self._joining = self._joining._replace(keeps_leases=True)
        self._is_unknown = False
        self.has_changes = self._settings.is_assigned

    async def refresh(self) -> MembershipChange:
        """Ask how we stand, join anew if we have been missed, and tell what was gained or lost.

        StaleGeneration: somebody else joined under our name.
        """
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        self.has_changes = False
        if self._is_unknown:
            return await self._rejoin()
        try:
            heard = await self._pool.run(heartbeat_call(self.who))
        except UnknownMember:
            return await self._rejoin()
        except PenstockError:
            self.has_changes = True
            raise
        self.who = self.who._replace(generation=heard.generation, changes=heard.changes)
        self._asked = set(heard.partitions_to_revoke)
        return await self._tell(set(heard.partitions_assigned))

    async def _tell(self, readable: set[str]) -> MembershipChange:
        current = readable | self._asked
        lost, gained = self.assigned - current, readable - self.assigned
        self.assigned = (self.assigned & current) | gained
        await self._call(self._settings.on_lost, lost)
        await self._call(self._settings.on_assigned, gained)
        return MembershipChange(sorted(self._asked), sorted(lost))

    async def _rejoin(self) -> MembershipChange:
        """The server does not know us: it was restarted, or has not heard of us for too long."""
        self._is_unknown, self.has_changes = True, True
        lost, self.assigned, self._asked = self.assigned, set(), set()
        await self._call(self._settings.on_lost, lost)
        await self.join()
        return MembershipChange([], sorted(lost), is_rejoined=True)

    async def call_on_revoked(self, places: Sequence[str]) -> None:
        await self._call(self._settings.on_revoked, self.assigned.intersection(places))

    async def _call(self, told: PartitionsTold | None, places: Iterable[str]) -> None:
        named = sorted(places)
        if named and told is not None:
            await call_back(told, named)

    async def release(self, places: Sequence[str]) -> None:
        """Let go of partitions that were asked back."""
        self.assigned.difference_update(places)
        self._asked.difference_update(places)
        self.has_changes = True
        # Whatever has changed meanwhile is heard next.
        with suppress(StaleGeneration, UnknownMember):
            await self._pool.run(revoke_call(self.who, places))

    async def heartbeat(self) -> None:
        """A sign of life. What it brings is left to whoever polls."""
        try:
            heard = await self._pool.run_once(heartbeat_call(self.who))
        except Unavailable:
            return  # There are more heartbeats in a session than one.
        except (UnknownMember, StaleGeneration) as error:
            self.note(error)
        except PenstockError as error:
            self._trouble, self.has_changes = error, True
        else:
            # Also if only the generation is another one: without it a poll would be refused.
            if (heard.changes, heard.generation) != (self.who.changes, self.who.generation):
                self.has_changes = self._settings.is_assigned

    def note(self, error: UnknownMember | StaleGeneration) -> None:
        """Something was refused because of how we stand."""
        self._is_unknown |= isinstance(error, UnknownMember)
        self.has_changes = True

    def note_poll(self, polled: Polled[Delivered]) -> None:
        self.has_changes |= self._settings.is_assigned and polled.changes != self.who.changes

    async def leave(self) -> None:
        """What we still hold is ready for others at once."""
        await self._pool.run(leave_call(self.who))
