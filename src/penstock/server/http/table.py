"""All routes. A new one is an entry in the ROUTES of its module, and a new module is a line here."""

from . import (
    answering,
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
    schema_settings,
    schemas,
    topics,
    transactions,
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
    *transactions.ROUTES,
    *delays.ROUTES,
    *lanes.ROUTES,
    *groups.ROUTES,
    *members.ROUTES,
    *dead_letters.ROUTES,
    *pipelines.ROUTES,
    *keys.ROUTES,
    *schemas.ROUTES,
    *schema_settings.ROUTES,
    *openapi.ROUTES,
)
