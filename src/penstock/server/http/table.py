"""All routes. A new one is an entry in the ROUTES of its module, and a new module is a line here."""

from . import (
    answering,
    columns,
    consuming,
    dead_letters,
    delays,
    groups,
    health,
    keys,
    lanes,
    members,
    openapi,
    pipelines,
    publishing,
    queries,
    reading,
    topics,
)
from .routing import Route

ROUTES: tuple[Route, ...] = (
    *health.ROUTES,
    *topics.ROUTES,
    *publishing.ROUTES,
    *reading.ROUTES,
    *queries.ROUTES,
    *consuming.ROUTES,
    *answering.ROUTES,
    *columns.ROUTES,
    *delays.ROUTES,
    *lanes.ROUTES,
    *groups.ROUTES,
    *members.ROUTES,
    *dead_letters.ROUTES,
    *pipelines.ROUTES,
    *keys.ROUTES,
    *openapi.ROUTES,
)
