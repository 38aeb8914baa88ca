"""The life of `penstock serve`: open the data, listen, serve, and on a signal stop in good order."""

import asyncio
import contextlib
import gc
import logging
import random
import resource
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from ..api.health import SeeStored
from ..broker.progress import OpeningProgress
from ..config import OFF, FsyncPolicy
from ..errors import PenstockError, Refused, Unavailable
from ..log.reign import ALONE
from ..observability.activity import Activity
from ..observability.recent import STEP_S
from ..ports import Disk
from ..runtime import RealDisk, SystemClock
from ..runtime.asynchronous import AsyncDriver
from ..runtime.fatal import exit_process
from ..runtime.threads import ThreadDriver
from ..runtime.world import World
from .audit import AuditLog
from .audit_files import AUDIT_FILE, verify
from .binary.service import BinaryService
from .binary.serving import BinaryServer
from .first_key import write_first_key
from .http.app import App
from .http.auth import Auth
from .http.connection import Connection
from .http.publish_coalescer import PublishCoalescer
from .http.routing import Router
from .http.table import ROUTES
from .kafka.port import KafkaServer
from .logs import configure_logging
from .opening_ports import OpeningPorts, itself
from .otlp import SpanExport
from .settings import Settings
from .settings_sources import needs_restart, with_live
from .signals import end_at_once, handle_signals
from .standby.leader import LeaderRole
from .standby.turns import serve_in_turns
from .tls import check_certificate, expires_at_ns, load_certificate, server_context

_SWEEP_S = 1.0
_BACKLOG = 2048
# Most openings are over by then, and who waits in line is served.
_SILENT_S = 1.0
_INSECURE_REMINDER_S = 60.0
_DESCRIPTORS_WANTED = 65_536
_CALM_S = 5.0
# Requests leave few cycles behind, and with many connections to look for them is dear. At the usual 700 new objects a
# crowd makes the collector look at all requests that are under way, again and again. Some 10 MB at most, if all of
# these were garbage.
_NEW_OBJECTS_MAX = 50_000
Reload = Callable[[], Settings]
OnReady = Callable[[str, str], None]
"""Gets the addresses of HTTP and of the binary port, the latter empty if it is off."""


class Serving:
    """One broker process. `reload` reads the settings again, for SIGHUP."""

    def __init__(self, settings: Settings, reload: Reload, logger: logging.Logger) -> None:
        self.settings, self._reload, self.logger = settings, reload, logger
        self.address = ""
        self.is_stopping = False

    def run(self, on_ready: OnReady) -> None:
        """Serve until a signal says stop. `on_ready` is called when requests are welcome."""
        import uvloop

        raise_descriptor_limit()
        # An opening makes hundreds of objects for each partition, and none of them is garbage.
        gc.set_threshold(_NEW_OBJECTS_MAX)
        end_at_once(
            lambda: self.logger.info(
                "stopped while the data was opened: only what the recovery did until now has changed"
            )
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(on_ready))

    async def _serve(self, on_ready: OnReady) -> None:
        settings = self.settings
        if settings.tls.is_on:
            check_certificate(settings.tls)
        listener = listen(settings.broker.host, settings.broker.port)
        binary_listener = None
        if settings.broker.binary_port != OFF:
            binary_listener = listen(
                settings.broker.host, settings.broker.binary_port, "broker.binary_port"
            )
        self.address = address_of(listener, is_tls=settings.tls.is_on)
        self._on_ready: OnReady | None = on_ready
        disk = RealDisk(settings.broker.data_dir, settings.storage.storage_config())
        try:
            if settings.cluster.is_on:
                await serve_in_turns(self, disk, listener, binary_listener, listen)
            else:
                await self.serve_clients(disk, listener, binary_listener)
        finally:
            disk.close()
            listener.close()
            if binary_listener is not None:
                binary_listener.close()
        self.logger.info("stopped")

    async def serve_clients(
        self,
        disk: RealDisk,
        listener: socket.socket,
        binary_listener: socket.socket | None,
        leading: LeaderRole | None = None,
    ) -> None:
        """Open the data and serve until a signal, or until `leading` is over. The sockets are closed then."""
        settings, data = self.settings, Path(self.settings.broker.data_dir)
        spans = None
        if settings.otlp.endpoint:
            spans = SpanExport(settings.otlp, settings.broker.id, self.logger)
        activity = Activity()
        loop = asyncio.get_running_loop()
        driver = await self._open_and_answer(disk, activity, leading, (listener, binary_listener))
        app = make_app(
            settings, AsyncDriver(driver, loop), disk, data, self.logger, activity=activity
        )
        stopped = asyncio.Event()
        if leading is not None:
            app.leading = leading
            leading.begin(app.driver, stopped, app.auth.audit)
        if spans is not None:
            app.spans = spans
            spans.start(driver)
        context = None
        if settings.tls.is_on:
            context = server_context(settings.tls)
            app.tls_expires_ns = expires_at_ns(settings.tls)
        server = await loop.create_server(
            lambda: Connection(app),
            sock=listener,
            backlog=_BACKLOG,
            ssl=context,
            ssl_handshake_timeout=settings.http.header_timeout_ms / 1000 if context else None,
        )
        binary = None
        if binary_listener is not None:
            binary = BinaryServer(self._binary_service(app, listener), binary_listener)
            await binary.start()
        self._handle_signals(loop, stopped, app, context, binary)
        if self.is_stopping:
            # The signal came between two roles.
            stopped.set()
        sweeper = loop.create_task(self._sweep(app, binary))
        self.ready("" if binary is None else binary.address)
        # All objects are looked at once: after a fail-over not while clients wait for the new leader.
        calm = loop.call_later(0 if leading is None else _CALM_S, keep_objects)
        await stopped.wait()
        calm.cancel()
        app.drain()
        if binary is not None:
            binary.drain()
        # Those who waited are woken in the next turn of the loop, and are under way then.
        await asyncio.sleep(0)
        server.close()
        await app.stop()
        if binary is not None:
            await binary.stop()
        sweeper.cancel()
        if spans is not None:
            await app.driver.in_thread(spans.stop)
        if leading is not None:
            await leading.end()
        await app.driver.in_thread(driver.close)
        # What this reign had open is garbage from here on.
        gc.unfreeze()
        await app.driver.in_thread(app.auth.close)

    def ready(self, binary_address: str) -> None:
        """Clients are answered: say where, the first time."""
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            asyncio.get_running_loop().call_soon(on_ready, self.address, binary_address)

    async def _open_and_answer(
        self,
        disk: RealDisk,
        activity: Activity,
        leading: LeaderRole | None,
        sockets: tuple[socket.socket, socket.socket | None],
    ) -> ThreadDriver:
        """Open the data. If that takes long, clients that wait in line are told so."""
        settings, progress = self.settings, OpeningProgress()
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(None, self._open, disk, activity, leading, progress)
        done, _ = await asyncio.wait([opening], timeout=_SILENT_S)
        if done:
            return opening.result()
        ports = OpeningPorts(settings, progress, itself(settings, *sockets))
        await ports.listen(*sockets, server_context(settings.tls) if settings.tls.is_on else None)
        try:
            return await opening
        finally:
            ports.close()

    def _open(
        self,
        disk: RealDisk,
        activity: Activity,
        leading: LeaderRole | None,
        progress: OpeningProgress,
    ) -> ThreadDriver:
        world = World(
            clock=SystemClock(),
            entropy=random.SystemRandom(),
            logger=self.logger,
            on_fatal=exit_process,
            limits=self.settings.limits.limits_config(),
            config=self.settings.node_config(),
            observer=activity.observe,
            gate=None if leading is None else leading.gate,
            reign=ALONE if leading is None else leading.leader,
            progress=progress,
        )
        storage = self.settings.storage.storage_config()
        if leading is not None and leading.is_always_synced:
            storage = replace(storage, fsync=FsyncPolicy.ALWAYS)
        is_new, began_s = not disk.list("meta"), time.monotonic()
        try:
            driver = ThreadDriver(disk, storage, world)
        except PenstockError as error:
            # It knows the path inside the directory only.
            error.args = (f"data directory {self.settings.broker.data_dir}: {error}",)
            raise
        stored, opened_in_s = driver.execute(SeeStored()), time.monotonic() - began_s
        found = (
            f"{stored.topics} topics, {stored.partitions} partitions, opened in {opened_in_s:.1f} s"
        )
        # An empty directory is mostly a disk that is not mounted.
        content = "a new directory" if is_new else found
        data = Path(self.settings.broker.data_dir).resolve()
        self.logger.info("penstock %s, data in %s: %s", version("penstock"), data, content)
        return driver

    def _binary_service(self, app: App, listener: socket.socket) -> BinaryService:
        service = BinaryService(
            app.driver,
            self.settings,
            app.auth,
            rate=app.rate,
            budget=app.send_budget,
            memory=app.memory,
            shared=app.shared,
            traffic=app.binary,
            logger=self.logger,
        )
        service.http_port = listener.getsockname()[1]
        service.kafka = KafkaServer(service)
        return service

    def _handle_signals(
        self,
        loop: asyncio.AbstractEventLoop,
        stopped: asyncio.Event,
        app: App,
        context: ssl.SSLContext | None,
        binary: BinaryServer | None,
    ) -> None:
        def stop() -> None:
            self.logger.info("stopping: no new requests, those under way are finished")
            self.is_stopping = True
            stopped.set()

        handle_signals(loop, stop, lambda: self._take_over(app, context, binary))

    def _take_over(
        self, app: App, context: ssl.SSLContext | None, binary: BinaryServer | None
    ) -> None:
        """SIGHUP. What is wrong is said, and everything stays as it was."""
        try:
            wanted = self._reload()
            settings = with_live(self.settings, wanted)
            if context is not None and settings.tls.is_on:
                check_certificate(settings.tls)
                load_certificate(context, settings.tls)
                if binary is not None:
                    binary.load_certificate(settings)
                app.tls_expires_ns = expires_at_ns(settings.tls)
        except (PenstockError, OSError) as error:
            self.logger.error("not reloaded: %s", error)
            return
        later = needs_restart(self.settings, wanted)
        self.settings = settings
        configure_logging(settings.log)
        app.configure(settings)
        if binary is not None:
            binary.service.configure(settings)
        if later:
            self.logger.warning("reloaded; restart for: %s", ", ".join(later))
        else:
            self.logger.info("reloaded; all of it")

    async def _sweep(self, app: App, binary: BinaryServer | None) -> None:
        """What has to happen now and then."""
        remind_at = sample_at = 0.0
        is_insecure = not self.settings.broker.is_loopback and not self.settings.auth.enabled
        while True:
            try:
                app.sweep()
                if binary is not None:
                    binary.service.sweep()
                if time.monotonic() >= sample_at:
                    sample_at = time.monotonic() + STEP_S
                    await app.sample()
            except (PenstockError, OSError) as error:
                # Without sweeps no request would ever time out.
                self.logger.error("a sweep failed, and the next one follows: %s", error)
            if is_insecure and time.monotonic() >= remind_at:
                remind_at = time.monotonic() + _INSECURE_REMINDER_S
                self.logger.warning(
                    "every client that reaches %s is an administrator", self.address
                )
            await asyncio.sleep(_SWEEP_S)


def _check_audit(disk: Disk, logger: logging.Logger) -> None:
    """Log which lines of the two newest files of the audit log were changed. It takes a while; nothing waits for it."""
    try:
        changed = [problem for problem in verify(disk, files_max=1) if problem.line]
    except PenstockError as error:
        logger.warning("the audit log was not checked: %s", error)
        return
    if changed:
        first = changed[0]
        logger.error(
            "the audit log is not as it was written: %s, line %d: %s (%d in all)",
            first.file,
            first.line,
            first.text,
            len(changed),
        )


def make_app(
    settings: Settings,
    driver: AsyncDriver,
    disk: Disk,
    data: Path,
    logger: logging.Logger,
    *,
    activity: Activity,
) -> App:
    """The application on a node, with the audit log on a disk, whose root is `data`. `activity` observes the node."""
    clock = driver.clock
    if settings.auth.enabled and (first := write_first_key(data, driver.driver)) is not None:
        logger.warning("no keys yet: the first one, for the administrator, is in %s", first)
    audit = AuditLog(disk, clock.now_ns, settings.audit)
    if audit.lost:
        logger.error("the audit log may have lost lines: %s (%s)", audit.lost, data / AUDIT_FILE)
    driver.loop.run_in_executor(None, _check_audit, disk, logger)
    return App(
        driver=driver,
        settings=settings,
        auth=Auth(settings, driver.driver, audit, time.monotonic, driver.loop),
        router=Router(ROUTES),
        logger=logger,
        coalescer=PublishCoalescer(driver, driver.loop),
        activity=activity,
        clock=clock,
        started_ns=clock.monotonic_ns(),
    )


def listen(host: str, port: int, setting: str = "broker.port") -> socket.socket:
    """A socket that is bound. Refused: the address is not ours; Unavailable: another process has the port."""
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
        raise Unavailable(f"cannot listen on {host}:{port} ({setting}): {error.strerror}") from None
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


def keep_objects() -> None:
    """What is here now stays, but for the garbage of the start: the collector takes that, and looks at the rest no
    more until `gc.unfreeze`."""
    gc.collect()
    gc.freeze()
