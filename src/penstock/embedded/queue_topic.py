"""The topic that a queue rests on: its settings, and how it is made."""

from typing import Any

from ..api.groups import OpenGroup
from ..api.topics import ConfigureTopic, CreateTopic, DescribeTopic, ListTopics
from ..broker.partition.dead_letters import dead_letter_topic
from ..config import OFF, DeliveryConfig
from ..runtime.threads import ThreadDriver
from .write_buffer import GROUP, TOPIC

# A queue keeps what no consumer has finished, however old or large it gets, and knows for ever how far it was read.
QUEUE_SETTINGS: dict[str, Any] = {
    "keep_unread": True,
    "keep_unread_bytes_max": 1 << 60,
    "group_retention_hours": OFF,
    # A queue has no command for journeys.
    "journey_retention_hours": 0,
    # All members are threads of this process: what holds for the group is enough.
    "max_in_flight_per_consumer": DeliveryConfig().max_in_flight,
}


def make_topic(driver: ThreadDriver, settings: dict[str, Any]) -> bool:
    """Whether the topic of the queue, which is there from now on, has a limited backlog."""
    if "max_in_flight" in settings:
        settings = {"max_in_flight_per_consumer": settings["max_in_flight"]} | settings
    topics = driver.execute(ListTopics())
    if TOPIC not in topics:
        driver.execute(CreateTopic(TOPIC, 1, QUEUE_SETTINGS | settings))
    driver.execute(OpenGroup(GROUP, (TOPIC,)))
    if TOPIC in topics and settings:
        driver.execute(ConfigureTopic(TOPIC, settings))
        if "on_damage" in settings and dead_letter_topic(TOPIC) in topics:
            policy = {"on_damage": settings["on_damage"]}
            driver.execute(ConfigureTopic(dead_letter_topic(TOPIC), policy))
    config = driver.execute(DescribeTopic(TOPIC)).settings
    return bool(max(config["max_backlog_messages"], config["max_backlog_bytes"]) != OFF)
