"""Journeys of messages in the library: where a message is, and everything that happened to it."""

import msgspec

from ..api.arguments import instance, text, whole_number
from ..api.journeys import (
    DescribeJourney,
    DescribeJourneys,
    FindTrace,
    Journey,
    JourneyPage,
    JourneyRow,
    JourneyStats,
    ListJourneys,
    SearchJourneys,
)
from ..errors import TraceNotFound
from ..runtime.threads import ThreadDriver

_OFFSET_MAX = (1 << 63) - 1


class BrokerJourneys:
    """The part of a broker that is about journeys, by the names that the client has for them."""

    driver: ThreadDriver

    def journey(self, topic: str, partition: int, offset: int) -> Journey:
        """Everything that happened to a message, for every group. NotFound, OffsetOutOfRange."""
        number = whole_number("partition", partition, 0, _OFFSET_MAX)
        place = whole_number("offset", offset, 0, _OFFSET_MAX)
        return self.driver.execute(DescribeJourney(_topic(topic), number, place))

    def trace(self, trace_id: str, *, topic: str | None = None) -> Journey:
        """The journey of a trace id, derived or sent. For one that was sent, messages are searched. TraceNotFound."""
        name = None if topic is None else _topic(topic)
        command = FindTrace(topic=name, trace_id=text("a trace id", trace_id))
        while True:
            try:
                return self.driver.execute(command)
            except TraceNotFound as error:
                cursor = error.fields.get("cursor")
                if not isinstance(cursor, str):
                    raise
                # Between two pages others get their turn.
                command = msgspec.structs.replace(command, cursor=cursor)

    def journeys(self, topic: str | None = None, *, limit: int = 20) -> list[JourneyRow]:
        """The journeys of the messages that were published last, the latest first."""
        name = None if topic is None else _topic(topic)
        count = whole_number("limit", limit, 1, _OFFSET_MAX)
        return self.driver.execute(ListJourneys(topic=name, limit=count)).rows

    def search_journeys(self, search: SearchJourneys) -> JourneyPage:
        """One page of a search, which reads so many bytes of messages at most; its cursor is where to go on."""
        return self.driver.execute(instance("a search", search, SearchJourneys))

    def journey_stats(self) -> JourneyStats:
        """What is kept for journeys, and how long messages take."""
        return self.driver.execute(DescribeJourneys())


def _topic(given: str) -> str:
    return text("a topic's name", given)
