"""Our own api key for hello: the client shows its key, and gets to know the server."""

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ...api.fetch import FETCH_BYTES_MAX
from ...api.frames import ClientDefaults, HelloReply, Limits
from ...api.principals import Principal, Role
from ...api.wire import decode_hello, encode_value
from ...errors import PenstockError, Unauthenticated
from ..settings import Settings
from .service import BinaryService

if TYPE_CHECKING:
    from .connection import Connection

_CLIENT_CHARACTERS_MAX = 200
FEATURES = ("commands", "cancel")


def hello(
    service: BinaryService, connection: "Connection", correlation: int, body: memoryview
) -> None:
    """Tell a client what it has to know, once its key is good where keys are asked for."""
    try:
        sent = decode_hello(body)
        if service.auth.is_on:
            found = service.auth.authenticate(sent.key, connection.client, "hello")
            connection.authenticated(*found)
    except PenstockError as error:
        connection.fail(correlation, error)
        if isinstance(error, Unauthenticated):
            connection.close()
        return
    service.logger.debug(
        "%s says hello: %s", connection.client, sent.client[:_CLIENT_CHARACTERS_MAX]
    )
    settings = service.settings
    limits = Limits(
        frame_bytes_max=settings.binary.frame_bytes_max,
        requests_in_flight_max=settings.binary.connection_requests_max,
        poll_messages_max=settings.consumer.max_poll_records_binary,
        poll_wait_ms_max=settings.consumer.poll_timeout_ms_max,
        fetch_bytes_max=FETCH_BYTES_MAX,
        batch_bytes_max=settings.limits.batch_bytes_max,
        value_bytes_max=settings.limits.value_bytes_max,
        key_bytes_max=settings.limits.key_bytes_max,
        headers_bytes_max=settings.limits.headers_bytes_max,
    )
    reply = HelloReply(
        server=version("penstock"),
        node_id=settings.broker.node_id,
        broker_id=settings.broker.id,
        http=service.http_address(connection.local_host),
        limits=limits,
        features=FEATURES,
        data_dir=_data_dir(settings, connection.principal),
        started_at_ns=service.started_at_ns,
        defaults=_defaults(settings),
    )
    connection.reply(correlation, encode_value(reply))


def _defaults(settings: Settings) -> ClientDefaults:
    producer, consumer = settings.producer, settings.consumer
    return ClientDefaults(
        batch_size=producer.batch_size,
        linger_ms=producer.linger_ms,
        batch_bytes=producer.batch_bytes,
        ack_mode=producer.ack_mode,
        retries=producer.retries,
        retry_backoff_ms=producer.retry_backoff_ms,
        retry_backoff_max_ms=producer.retry_backoff_max_ms,
        session_timeout_ms=consumer.session_timeout_ms,
        heartbeat_interval_ms=consumer.heartbeat_interval_ms,
    )


def _data_dir(settings: Settings, principal: Principal | None) -> str:
    """Empty for keys that may only look."""
    if principal is None or principal.role is Role.READONLY:
        return ""
    return str(Path(settings.broker.data_dir).absolute())
