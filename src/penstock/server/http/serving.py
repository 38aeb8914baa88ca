"""The life of `penstock serve`: open the data, listen, serve, and on a signal stop in good order."""

import asyncio
import contextlib
import gc
import logging
import random
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from ...errors import PenstockError, Refused, Unavailable
from ...runtime import RealDisk, SystemClock
from ...runtime.asynchronous import AsyncDriver
from ...runtime.fatal import exit_process
from ...runtime.threads import ThreadDriver
from ...runtime.world import World
from ..audit import AuditLog
from ..first_key import write_first_key
from ..logs import configure_logging
from ..reading_settings import needs_restart, with_live
from ..settings import Settings
from ..tls import check_certificate, expires_at_ns, load_certificate, restrict
from .connection import Connection
from .door import Door
from .gate import Gate
from .inlet import Inlet
from .routing import Router
from .table import ROUTES

if TYPE_CHECKING:
    from ...broker.partition import Now

_SWEEP_S = 1.0
_BACKLOG = 2048
_INSECURE_REMINDER_S = 60.0
_DESCRIPTORS_WANTED = 65_536
# Some 10 MB at most, if all of them were garbage.
_NEW_OBJECTS_MAX = 50_000
Reload = Callable[[], Settings]


class _Server(uvicorn.Server):
    """Signals are ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """One broker process. `reload` reads the settings again, for SIGHUP."""

    def __init__(self, settings: Settings, reload: Reload, logger: logging.Logger) -> None:
        self.settings, self._reload, self.logger = settings, reload, logger
        self.address = ""

    def run(self, on_ready: Callable[[str], None]) -> None:
        """Serve until a signal says stop. `on_ready` gets the address when requests are welcome."""
        import uvloop

        raise_descriptor_limit()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(on_ready))

    async def _serve(self, on_ready: Callable[[str], None]) -> None:
        settings = self.settings
        if settings.tls.is_on:
            check_certificate(settings.tls)
        listener = listen(settings.broker.host, settings.broker.port)
        data = Path(settings.broker.data_dir)
        disk = RealDisk(str(data), settings.storage.storage_config())
        try:
            driver = self._open(disk)
            loop = asyncio.get_running_loop()
            door = make_door(settings, AsyncDriver(driver, loop), data, self.logger)
            server = _Server(self._uvicorn_config(door))
            server.config.load()
            if settings.tls.is_on:
                assert server.config.ssl is not None, "it was loaded with a certificate"
                restrict(server.config.ssl)
                door.tls_expires_ns = expires_at_ns(settings.tls)
            door.connections = lambda: len(server.server_state.connections)
            self._handle_signals(loop, server, door)
            self.address = address_of(listener, is_tls=settings.tls.is_on)
            sweeper = loop.create_task(self._sweep(door))
            loop.call_soon(on_ready, self.address)
            collect_seldom()
            await server.serve(sockets=[listener])
            sweeper.cancel()
            await door.driver.in_thread(lambda: driver.close(_nothing))
            door.gate.close()
        finally:
            disk.close()
        self.logger.info("stopped")

    def _open(self, disk: RealDisk) -> ThreadDriver:
        world = World(
            clock=SystemClock(),
            entropy=random.SystemRandom(),
            logger=self.logger,
            on_fatal=exit_process,
            limits=self.settings.limits.limits_config(),
        )
        return ThreadDriver(disk, self.settings.storage.storage_config(), world)

    def _uvicorn_config(self, door: Door) -> uvicorn.Config:
        http, tls = self.settings.http, self.settings.tls
        protocol = type(
            "Connection",
            (Connection,),
            {
                "door": door,
                "connections_max": http.connections_max,
                "header_bytes_max": http.header_bytes_max,
                "header_timeout_s": http.header_timeout_ms / 1000,
                "write_timeout_s": http.write_timeout_ms / 1000,
            },
        )
        return uvicorn.Config(
            door,
            http=protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=max(1, http.keep_alive_ms // 1000),
            timeout_graceful_shutdown=max(1, http.drain_timeout_ms // 1000),
            ssl_certfile=tls.cert_file or None,
            ssl_keyfile=tls.key_file or None,
        )

    def _handle_signals(
        self, loop: asyncio.AbstractEventLoop, server: uvicorn.Server, door: Door
    ) -> None:
        def stop() -> None:
            self.logger.info("stopping: no new requests, those under way are finished")
            door.drain()
            server.should_exit = True

        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._take_over(server, door))

    def _take_over(self, server: uvicorn.Server, door: Door) -> None:
        """SIGHUP. What is wrong is said, and everything stays as it was."""
        try:
            wanted = self._reload()
            settings = with_live(self.settings, wanted)
            if self.settings.tls.is_on and settings.tls.is_on:
                check_certificate(settings.tls)
                assert server.config.ssl is not None, "it was on when we started"
                load_certificate(server.config.ssl, settings.tls)
                door.tls_expires_ns = expires_at_ns(settings.tls)
        except (PenstockError, OSError) as error:
            self.logger.error("not reloaded: %s", error)
            return
        later = needs_restart(self.settings, wanted)
        self.settings = settings
        configure_logging(settings.log)
        door.configure(settings)
        self.logger.info(
            "reloaded; %s", f"restart for: {', '.join(later)}" if later else "all of it"
        )

    async def _sweep(self, door: Door) -> None:
        """What has to happen now and then."""
        remind_at = 0.0
        is_insecure = not self.settings.broker.is_loopback and not self.settings.auth.enabled
        while True:
            door.sweep()
            if is_insecure and time.monotonic() >= remind_at:
                remind_at = time.monotonic() + _INSECURE_REMINDER_S
                self.logger.warning("anybody who reaches %s is an administrator", self.address)
            await asyncio.sleep(_SWEEP_S)


def make_door(settings: Settings, driver: AsyncDriver, data: Path, logger: logging.Logger) -> Door:
    """The application on a node, with the audit log of a data directory."""
    clock = driver.driver.clock
    if settings.auth.enabled and (first := write_first_key(data, driver.driver)) is not None:
        logger.warning("no keys yet: the first one, for the administrator, is in %s", first)
    audit = AuditLog(data, clock.now_ns)
    if audit.lost:
        logger.error("the audit log may have lost lines: %s (%s)", audit.lost, audit.path)
    return Door(
        driver=driver,
        settings=settings,
        gate=Gate(settings, driver.driver, audit, time.monotonic, driver.loop),
        router=Router(ROUTES),
        logger=logger,
        inlet=Inlet(driver, driver.loop),
        started_ns=clock.monotonic_ns(),
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound. Refused: the address is not ours; Unavailable: somebody has the port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except socket.gaierror as error:
        raise Refused(f"broker.host {host}: {error.strerror}") from None
    except OSError as error:
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from None
    # From here on clients wait in line instead of being turned away, while the data is opened.
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket, *, is_tls: bool) -> str:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if is_tls else 'http'}://{shown}:{port}"


def raise_descriptor_limit() -> None:
    """Every connection and every open segment is a descriptor, and the usual limit of 1024 is soon reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = (
        _DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_WANTED)
    )
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def collect_seldom() -> None:
    """What is here now stays. Requests leave few cycles behind, and with many connections to look for them is dear.

    At the usual 700 new objects a crowd makes the collector look at all requests that are under way, again and again.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS_MAX)


def _nothing(_now: "Now") -> None:
    return
