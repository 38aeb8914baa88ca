"""A consumer's place in its group: joined, kept by heartbeats, given up in parts, lost and taken again."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from ...errors import PenstockError, StaleGeneration, Unavailable, UnknownMember
from .. import membership as calls
from ..calls import Call
from ..consumer_options import ConsumerSettings, OnPartitions
from ..leased_messages import Delivered, Polled
from ..membership import Membership, MembershipChange
from .connector import AsyncConnector
from .io import call_back


class AsyncMember:
    """Only the task that polls may use it, but for `heartbeat` and `note_refusal`; it runs the callbacks, too."""

    def __init__(
        self,
        connector: AsyncConnector,
        settings: ConsumerSettings,
        membership: Membership,
        topics: Sequence[str],
    ) -> None:
        self._connector, self._settings, self._topics = connector, settings, topics
        self.membership = membership
        # The partitions that `on_assigned` was called with, and those of them that the group asks back.
        self.assigned: set[str] = set()
        self.revoking: set[str] = set()
        self.has_changes = False
        self._is_rejoin = False
        self._is_unknown = False
        self._failure: PenstockError | None = None

    async def join(self) -> None:
        group, is_rejoin = self.membership.group, self._is_rejoin
        command = calls.join(self.membership, self._topics, self._settings, is_rejoin=is_rejoin)
        joined = (await self._connector.execute(command)).value
        self.membership = Membership(group, joined.member, joined.standing.generation)
        self._is_rejoin = True
        self._is_unknown = False
        self.has_changes = self._settings.is_assigned

    async def refresh(self) -> MembershipChange:
        """Ask the server for our partitions, join again if it has forgotten us, and call the callbacks.

        StaleGeneration: another consumer joined under our name.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self.has_changes = False
        if self._is_unknown:
            return await self._rejoin()
        try:
            reply = await self._connector.execute(calls.heartbeat(self.membership))
        except UnknownMember:
            return await self._rejoin()
        except PenstockError:
            self.has_changes = True
            raise
        standing = reply.value
        self.membership = self.membership._replace(
            generation=standing.generation, changes=standing.changes
        )
        readable = set(map(str, standing.assigned))
        self.revoking = set(map(str, standing.to_release))
        current = readable | self.revoking
        lost, gained = self.assigned - current, readable - self.assigned
        self.assigned = (self.assigned & current) | gained
        await self._call(self._settings.on_lost, lost)
        await self._call(self._settings.on_assigned, gained)
        return MembershipChange(sorted(self.revoking), sorted(lost))

    async def _rejoin(self) -> MembershipChange:
        """Join again: the server was restarted, or had no heartbeat for a session."""
        self._is_unknown, self.has_changes = True, True
        lost, self.assigned, self.revoking = self.assigned, set(), set()
        await self._call(self._settings.on_lost, lost)
        await self.join()
        return MembershipChange([], sorted(lost), is_rejoin=True)

    async def call_on_revoked(self, places: Sequence[str]) -> None:
        await self._call(self._settings.on_revoked, self.assigned.intersection(places))

    async def _call(self, callback: OnPartitions | None, places: Iterable[str]) -> None:
        named = sorted(places)
        if named and callback is not None:
            await call_back(callback, named)

    async def release(self, places: Sequence[str]) -> None:
        """Give up partitions that the group asked back."""
        self.assigned.difference_update(places)
        self.revoking.difference_update(places)
        self.has_changes = True
        # The next refresh finds out what has changed meanwhile.
        with suppress(StaleGeneration, UnknownMember):
            await self._connector.execute(calls.release(self.membership, places))

    async def heartbeat(self) -> None:
        """Send a heartbeat. The task that polls handles what the answer says."""
        try:
            sent = await self._connector.begin(Call(calls.heartbeat(self.membership)))
            standing = (await self._connector.end(sent)).value
        except Unavailable:
            return  # A session has more heartbeats than one.
        except (UnknownMember, StaleGeneration) as error:
            self.note_refusal(error)
        except PenstockError as error:
            self._failure, self.has_changes = error, True
        else:
            # A new generation counts, too: under the old one the server would refuse a poll.
            known = self.membership.changes, self.membership.generation
            if (standing.changes, standing.generation) != known:
                self.has_changes = self._settings.is_assigned

    def note_refusal(self, error: UnknownMember | StaleGeneration) -> None:
        """The server refused a request of ours for what it knows of this member."""
        self._is_unknown |= isinstance(error, UnknownMember)
        self.has_changes = True

    def note_poll(self, polled: Polled[Delivered]) -> None:
        is_assigned = self._settings.is_assigned
        self.has_changes |= is_assigned and polled.changes != self.membership.changes

    async def leave(self) -> None:
        """Leave the group; other members may have at once what this one holds."""
        await self._connector.execute(calls.leave(self.membership, self._settings))
