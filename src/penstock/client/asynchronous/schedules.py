"""What a client asks of a server about recurring messages."""

from typing import Unpack

from msgspec import UNSET, UnsetType

from ...api.contents import Content
from ...api.schedule_options import NewScheduleOptions, ScheduleChanges, changed, created
from ...api.schedules import (
    DeleteSchedule,
    GetSchedule,
    ListSchedules,
    RunSchedule,
    ScheduleDescription,
)
from ...errors import AlreadyExists
from ..commands import name_of
from ..publish import SCHEDULE_READERS, Published, published_of
from .admin import AsyncAdmin


class AsyncSchedules(AsyncAdmin):
    """The part of `AsyncClient` that is about recurring messages. Schedules are named by their topic and their key."""

    async def create_schedule(
        self,
        topic: str,
        key: str,
        value: Content | UnsetType = UNSET,
        *,
        exist_ok: bool = False,
        **options: Unpack[NewScheduleOptions],
    ) -> ScheduleDescription:
        """Publish a message again and again: `cron="0 9 * * mon-fri", timezone="Europe/Berlin"`, or `every="15m"`.

        AlreadyExists: the topic has a schedule of this key; with `exist_ok` it stays as it is. Refused: something
        about the schedule is wrong.
        """
        try:
            return await self.execute(created(topic, key, value, options, SCHEDULE_READERS))
        except AlreadyExists:
            if not exist_ok:
                raise
            return await self.schedule(topic, key)

    async def schedules(self, topic: str) -> list[ScheduleDescription]:
        """All schedules of a topic, by key."""
        return await self.execute(ListSchedules(name_of("topic", topic)))

    async def schedule(self, topic: str, key: str) -> ScheduleDescription:
        """One schedule, and when it is due next. NotFound."""
        return await self.execute(GetSchedule(name_of("topic", topic), name_of("schedule", key)))

    async def change_schedule(
        self, topic: str, key: str, **changes: Unpack[ScheduleChanges]
    ) -> ScheduleDescription:
        """Change what is given; the rest stays. `paused=True` pauses it, `paused=False` resumes it. NotFound."""
        return await self.execute(changed(topic, key, changes, SCHEDULE_READERS))

    async def run_schedule(self, topic: str, key: str) -> Published:
        """Publish its message now, beside its occurrences. NotFound."""
        command = RunSchedule(name_of("topic", topic), name_of("schedule", key))
        reply = await self.connector.execute(command)
        return published_of(reply.value, reply.safety)

    async def delete_schedule(self, topic: str, key: str) -> None:
        """Publish nothing more of it. NotFound."""
        await self.execute(DeleteSchedule(name_of("topic", topic), name_of("schedule", key)))
