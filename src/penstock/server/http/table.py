"""All routes: of commands, whose classes say them, and those of people and other servers, in the ROUTES of a module."""

from ...api import commits as api_commits
from ...api import queries as api_queries
from ...api import schedules
from ...api import transactions as api_transactions
from . import (
    administration,
    answers,
    cluster,
    commits,
    console,
    consume,
    dead_letters,
    delays,
    fetch,
    groups,
    health,
    journeys,
    keys,
    lanes,
    members,
    openapi,
    overview,
    pipelines,
    publish,
    queries,
    schema_settings,
    schemas,
    topics,
    transaction_answers,
    transactions,
)
from .command_routes import routes_of
from .routing import Route

ROUTES: tuple[Route, ...] = (
    *health.ROUTES,
    *cluster.ROUTES,
    *overview.ROUTES,
    *console.ROUTES,
    *topics.ROUTES,
    *publish.ROUTES,
    *fetch.ROUTES,
    *routes_of(api_queries),
    *queries.ROUTES,
    *consume.ROUTES,
    *answers.ROUTES,
    *transactions.ROUTES,
    *routes_of(api_transactions),
    *transaction_answers.ROUTES,
    *commits.ROUTES,
    *routes_of(api_commits),
    *delays.ROUTES,
    *routes_of(schedules),
    *lanes.ROUTES,
    *groups.ROUTES,
    *members.ROUTES,
    *dead_letters.ROUTES,
    *journeys.ROUTES,
    *pipelines.ROUTES,
    *keys.ROUTES,
    *administration.ROUTES,
    *schemas.ROUTES,
    *schema_settings.ROUTES,
    *openapi.ROUTES,
)
