"""All routes. A new one is an entry in the ROUTES of its module, and a new module is a line here."""

from . import (
    answering,
    consuming,
    dead_letters,
    delays,
    groups,
    health,
    journeys,
    keys,
    lanes,
    members,
    openapi,
    pipelines,
    publishing,
    queries,
    reading,
    schema_settings,
    schemas,
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
    *delays.ROUTES,
    *lanes.ROUTES,
    *groups.ROUTES,
    *members.ROUTES,
    *dead_letters.ROUTES,
    *journeys.ROUTES,
    *pipelines.ROUTES,
    *keys.ROUTES,
    *schemas.ROUTES,
    *schema_settings.ROUTES,
    *openapi.ROUTES,
)
