"""The life of a broker with a standby: it leads, or it follows and refuses clients, in turns, until a signal."""

import asyncio
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime import RealDisk
from ..audit import AuditLog
from ..cluster_settings import split_address
from ..settings import Settings
from ..signals import handle_signals
from ..tls import server_context
from .follower import FollowerRole
from .leader import LeaderRole
from .membership import Membership
from .promotion import Role
from .refusing_ports import RefusingPorts

if TYPE_CHECKING:
    from ..serving import Serving

_BACKLOG = 2048


async def serve_in_turns(
    serving: "Serving",
    disk: RealDisk,
    listener: socket.socket,
    binary_listener: socket.socket | None,
    listen: Callable[[str, int, str], socket.socket],
) -> None:
    """Serve until a signal says stop, in whichever role this node has. Refused: it may not begin a cluster."""
    settings, data = serving.settings, Path(serving.settings.broker.data_dir)
    membership = Membership(settings, data, serving.logger)
    membership.http, membership.binary = addresses(settings, listener, binary_listener)
    # One thread touches the logs of a follower, and one data directory has one of them at a time.
    storage = ThreadPoolExecutor(1, thread_name_prefix="penstock-replica")
    following = FollowerRole(disk, membership, storage, serving.logger)
    membership.follow = following.run
    await following.open()
    await membership.start(listen(*split_address(settings.cluster.listen), "cluster.listen"))
    try:
        while not serving.is_stopping:
            membership.changed.clear()
            sockets = listener.dup(), None if binary_listener is None else binary_listener.dup()
            if membership.role is Role.LEADING:
                closed = await following.lead(membership.epoch, membership.facts.forced_epoch)
                leading = LeaderRole(membership, settings, disk, closed)
                # Deposed, this node follows when its data is closed: two that have the files open would both write.
                membership.follow = None
                await serving.serve_clients(disk, *sockets, leading)
                following.closed_logs = leading.leader.closed_logs
                membership.follow = following.run
                membership.look()
            else:
                await _follow(serving, membership, following, disk, sockets)
    finally:
        await membership.stop()
        await following.close()
        storage.shutdown(wait=False)


async def _follow(
    serving: "Serving",
    membership: Membership,
    following: FollowerRole,
    disk: RealDisk,
    sockets: tuple[socket.socket, socket.socket | None],
) -> None:
    """Refuse clients until this node leads, or a signal says stop. The membership follows meanwhile."""
    loop, settings, logger = asyncio.get_running_loop(), serving.settings, serving.logger
    ports = RefusingPorts(settings, membership, logger)
    ports.metrics = following.metrics
    membership.status, membership.has_all = following.status, lambda: False
    audit = AuditLog(disk, time.time_ns, settings.audit)
    membership.audit_to(partial(audit.note, "operator"))
    context = server_context(settings.tls) if settings.tls.is_on else None
    listener, binary_listener = sockets
    servers = [await loop.create_server(ports.http, sock=listener, backlog=_BACKLOG, ssl=context)]
    binary_address = ""
    if binary_listener is not None:
        servers.append(
            await loop.create_server(
                ports.binary, sock=binary_listener, backlog=_BACKLOG, ssl=context
            )
        )
        binary_address = addresses(settings, listener, binary_listener)[1]
    serving.ready(binary_address.replace("{host}", settings.broker.host))

    def stop() -> None:
        serving.is_stopping = True
        membership.changed.set()

    handle_signals(loop, stop, lambda: logger.info("a node that follows reloads nothing"))
    while membership.role is not Role.LEADING and not serving.is_stopping:
        membership.changed.clear()
        await membership.changed.wait()
    for server in servers:
        server.close()
    ports.close()
    membership.audit_to(None)
    await loop.run_in_executor(None, audit.close)


def addresses(
    settings: Settings, listener: socket.socket, binary_listener: socket.socket | None
) -> tuple[str, str]:
    """Where clients find this node over HTTP and on the binary port; `{host}` where only the peer knows the host."""
    name = settings.broker.advertise or settings.broker.host
    if name in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not listened on
        name = "{host}"
    host = f"[{name}]" if ":" in name else name
    end = "s" if settings.tls.is_on else ""
    http = f"http{end}://{host}:{listener.getsockname()[1]}"
    if binary_listener is None:
        return http, ""
    return http, f"penstock{end}://{host}:{binary_listener.getsockname()[1]}"
