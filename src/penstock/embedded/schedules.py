"""The part of a broker that is about recurring messages."""

from typing import Unpack

from msgspec import UNSET, UnsetType

from ..api.arguments import text
from ..api.publish import Published
from ..api.schedule_options import (
    ContentReaders,
    NewScheduleOptions,
    ScheduleChanges,
    changed,
    created,
)
from ..api.schedules import (
    DeleteSchedule,
    GetSchedule,
    ListSchedules,
    RunSchedule,
    ScheduleDescription,
)
from ..runtime.threads import ThreadDriver
from .messages import Value, as_bytes, headers_of

_READERS = ContentReaders(as_bytes, headers_of)


class BrokerSchedules:
    """Schedules are named by their topic and their key."""

    driver: ThreadDriver

    def create_schedule(
        self,
        topic: str,
        key: str,
        value: Value | UnsetType = UNSET,
        **options: Unpack[NewScheduleOptions],
    ) -> ScheduleDescription:
        """Publish a message again and again: `cron="0 9 * * mon-fri", timezone="Europe/Berlin"`, or `every="15m"`.

        AlreadyExists: the topic has a schedule of this key. Refused: something about it is wrong.
        """
        return self.driver.execute(created(topic, key, value, options, _READERS))

    def schedules(self, topic: str) -> list[ScheduleDescription]:
        """All schedules of a topic, by key."""
        return self.driver.execute(ListSchedules(text("topic", topic)))

    def schedule(self, topic: str, key: str) -> ScheduleDescription:
        """One schedule, and when it is due next. NotFound."""
        return self.driver.execute(GetSchedule(text("topic", topic), text("key", key)))

    def change_schedule(
        self, topic: str, key: str, **changes: Unpack[ScheduleChanges]
    ) -> ScheduleDescription:
        """Change what is given; the rest stays. `paused=True` pauses it, `paused=False` resumes it. NotFound."""
        return self.driver.execute(changed(topic, key, changes, _READERS))

    def run_schedule(self, topic: str, key: str) -> Published:
        """Publish its message now, beside its occurrences. NotFound."""
        return self.driver.execute(RunSchedule(text("topic", topic), text("key", key)))

    def delete_schedule(self, topic: str, key: str) -> None:
        """Publish nothing more of it. NotFound."""
        self.driver.execute(DeleteSchedule(text("topic", topic), text("key", key)))
