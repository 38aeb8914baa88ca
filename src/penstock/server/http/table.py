"""All routes. A new one is an entry in the ROUTES of its module, and a new module is a line here."""

from . import (
    answering,
    consuming,
    delays,
    groups,
    health,
    keys,
    lanes,
    letters,
    members,
    openapi,
    publishing,
    reading,
    topics,
)
from .routing import Route

ROUTES: tuple[Route, ...] = (
    *health.ROUTES,
    *topics.ROUTES,
    *publishing.ROUTES,
    *reading.ROUTES,
    *consuming.ROUTES,
    *answering.ROUTES,
    *delays.ROUTES,
    *lanes.ROUTES,
    *groups.ROUTES,
    *members.ROUTES,
    *letters.ROUTES,
    *keys.ROUTES,
    *openapi.ROUTES,
)
