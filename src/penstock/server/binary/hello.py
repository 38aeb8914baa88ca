"""What a broker says of itself when a client of the binary port says hello."""

from importlib.metadata import version
from pathlib import Path

from ...api.frames import HelloReply, Limits
from ...api.principals import Principal, Role
from ..settings import Settings
from .admission import FETCH_BYTES_MAX
from .service import BinaryService

FEATURES = ("commands", "cancel")


def hello_reply(service: BinaryService, principal: Principal | None, local_host: str) -> HelloReply:
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
    return HelloReply(
        server=version("penstock"),
        node_id=settings.broker.node_id,
        broker_id=settings.broker.id,
        http=service.http_address(local_host),
        limits=limits,
        features=FEATURES,
        data_dir=_data_dir(settings, principal),
        started_at_ns=service.started_at_ns,
    )


def _data_dir(settings: Settings, principal: Principal | None) -> str:
    """Empty for keys that may only look."""
    if principal is None or principal.role is Role.READONLY:
        return ""
    return str(Path(settings.broker.data_dir).absolute())
