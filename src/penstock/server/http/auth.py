"""Authentication: the host that a request names, the page that sent it, and the key that it shows."""

import re
from asyncio import AbstractEventLoop
from base64 import b64decode
from binascii import Error as BinasciiError
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ...api.keys import Credential
from ...api.principals import LOCAL, Principal, covers
from ...broker.authorise import READING, authorise
from ...errors import BadRequest, Forbidden, ForbiddenOrigin, TooManyRequests, Unauthenticated
from ...runtime.threads import ThreadDriver
from ..audit import AuditLog
from ..key_ends import KeyEnds
from ..rate_limiter import RateLimiter
from ..refusals import Refusals
from ..settings import Settings
from .requests import SAFE, Request

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# Guessing 256 bits is hopeless; this only keeps a client that tries from costing anything.
_FAILURES_MAX = 20
_FAILURES_S = 60.0
_HOUR_S = 3600.0
_ADDRESSES_KEPT = 10_000
# A name has 253 characters, a port five.
_HOST_BYTES_MAX = 300
# An address in brackets, or a name, which may be missing; neither a user before it nor a path behind it.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]*))(?::[0-9]{0,5})?")
# What browsers say of a request that no other page made: typed, or from our own pages. Other clients say nothing.
_OWN_SITES = frozenset({None, b"none", b"same-origin"})
_USUAL_PORTS = (("http://", ":80"), ("https://", ":443"))


class Auth:
    """Asked before every route. Without keys (`auth.enabled: false`) every client is the local administrator."""

    def __init__(
        self,
        settings: Settings,
        driver: ThreadDriver,
        audit: AuditLog,
        now: Callable[[], float],
        loop: AbstractEventLoop,
    ) -> None:
        self._driver, self.audit, self._now = driver, audit, now
        # When a key was last used, by its id: wall time of this process.
        self.last_used_ns: dict[str, int] = {}
        self.ends = KeyEnds(driver, loop)
        self.refusals = Refusals(audit, now)
        self._lines = RateLimiter(
            settings.audit.key_lines_per_hour,
            now,
            window_s=_HOUR_S,
            what="lines of the audit log an hour",
        )
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        self.is_on = settings.auth.enabled
        self._hosts = _LOOPBACK | {one.lower() for one in settings.http.allowed_hosts}
        # With keys a foreign name does no harm: a page that we do not know has none to show.
        self._is_any_host = self.is_on and not settings.http.allowed_hosts
        self._origins = frozenset(map(_as_sent, settings.http.allowed_origins))

    def check_host(self, request: Request) -> None:
        """ForbiddenOrigin for a name that is not ours, and for a page of another site. BadRequest for no name."""
        written = request.header(b"host") or b""
        host = _host_of(written)
        if not self._is_any_host and host.name not in self._hosts:
            raise ForbiddenOrigin(
                f"host {host.text[:100]!r} is not served here; list it in http.allowed_hosts"
            )
        origin = request.header(b"origin")
        if origin is not None:
            self._check_origin(origin.decode("latin-1").lower(), host.text)

    def _check_origin(self, origin: str, host: str) -> None:
        is_own = origin in {f"http://{host}", f"https://{host}"}
        if not is_own and origin not in self._origins:
            raise ForbiddenOrigin(
                f"pages of {origin[:100]!r} may not use this broker; list them in http.allowed_origins"
            )

    def check_site(self, request: Request) -> None:
        """ForbiddenOrigin for a request that changes something and that another page had a browser send.

        A page that may not read our answers can still ask; a GET that leases would do it harm enough. Pages that are
        allowed send their Origin, which `check_host` has looked at.
        """
        site = request.header(b"sec-fetch-site")
        if site in _OWN_SITES or request.header(b"origin") is not None:
            return
        if request.method not in SAFE or request.action not in READING:
            raise ForbiddenOrigin(
                "a page of another site may not have a browser do this; list its origin in "
                "http.allowed_origins and have it use CORS"
            )

    def identify(self, request: Request, route: str) -> None:
        """Set the principal of the request. Unauthenticated without a good key."""
        if not self.is_on:
            request.principal, request.credential = LOCAL, None
            return
        where = f"{request.method} {route}"
        request.principal, request.credential = self.authenticate(
            key_sent(request), request.client, where
        )

    def authenticate(self, sent: str, client: str, where: str) -> tuple[Principal, Credential]:
        """Whose key this is. Unauthenticated if it is not good; TooManyRequests for an address that fails too often."""
        found = self._driver.authenticate(sent)
        if found is None:
            # A good key is never turned away: others may try theirs from the same address.
            self.note_failure(client, where, is_counted=bool(sent))
            raise Unauthenticated(
                "send a key that is known and not expired: Authorization: Bearer ID.SECRET"
            )
        self.note_use(found[1])
        return found

    def note_use(self, credential: Credential) -> None:
        self.last_used_ns[credential.key_id] = self._driver.clock.now_ns()

    def note_failure(self, client: str, where: str, *, is_counted: bool = True) -> None:
        """A key was shown that is not good. TooManyRequests for an address that fails too often."""
        self.refusals.note(client, "authenticate", where, client)
        if is_counted:
            self._count_failure(client)

    def _count_failure(self, address: str) -> None:
        """TooManyRequests for an address that has failed too often in the last minute."""
        now = self._now()
        count, until = self._failures.get(address, (0, 0.0))
        if until <= now:
            count, until = 0, now + _FAILURES_S
        if count >= _FAILURES_MAX:
            wait_ms = int((until - now) * 1000) + 1
            raise TooManyRequests("failed keys", limit=_FAILURES_MAX, retry_after_ms=wait_ms)
        self._failures[address] = (count + 1, until)
        self._failures.move_to_end(address)
        if len(self._failures) > _ADDRESSES_KEPT:
            self._failures.popitem(last=False)

    def check(self, request: Request, topic: str | None) -> None:
        """Forbidden, unless the route's command is for this role and the topic for this key."""
        try:
            authorise(request.principal, request.action, topic)
        except Forbidden as error:
            self.note_refusal(request, error)
            raise

    def note_refusal(self, request: Request, error: Forbidden) -> None:
        topic = str(error.fields.get("topic", "")) or request.params.get("topic", "")
        self.refusals.note(request.principal.name, request.action.value, topic, request.client)

    def admit_line(self, principal: Principal) -> None:
        """Count a command that gets a line of the audit log. TooManyRequests: its key has its share, or all have."""
        self.audit.require_room()
        if self.is_on:
            self._lines.admit(principal.key_id)

    def check_prefixes(self, request: Request, prefixes: Sequence[str]) -> None:
        """Forbidden, unless a key with these prefixes reaches nothing that the caller's does not."""
        principal = request.principal
        if not covers(principal.prefixes, prefixes):
            where = ", ".join(prefixes)
            self.refusals.note(principal.name, request.action.value, where, request.client)
            raise Forbidden(
                f"{principal.name} makes keys with prefixes that begin with {' or '.join(principal.prefixes)}",
                principal=principal.name,
                prefixes=list(principal.prefixes),
            )

    def sweep(self) -> None:
        """Now and then: end what waits with a key that has ended, also if the clock was set; tell of refusals."""
        self.ends.look()
        self.refusals.sweep()

    def close(self) -> None:
        self.refusals.close()
        self.audit.close()


class _Host(NamedTuple):
    """A host header, in small letters, and the name in it without the port."""

    text: str
    name: str


def _as_sent(origin: str) -> str:
    """An origin of the settings as browsers send it: in lower case, without the usual port of its scheme."""
    found = origin.lower()
    for scheme, port in _USUAL_PORTS:
        if found.startswith(scheme):
            found = found.removesuffix(port)
    return found


def _host_of(written: bytes) -> _Host:
    """What is longer than any name is read each time: a thousand headers of 64 KiB would be too much to keep."""
    return _known_host(written) if len(written) <= _HOST_BYTES_MAX else _read_host(written)


def _read_host(written: bytes) -> _Host:
    """BadRequest for what is no name or address with at most a port behind it (RFC 9110, 7.2)."""
    text = written.decode("latin-1").lower()
    found = _HOST.fullmatch(text)
    if found is None:
        raise BadRequest(f"the host header {text[:100]!r} is no name or address with a port")
    return _Host(text, found[1] or found[2])


_known_host = lru_cache(maxsize=1024)(_read_host)


def _basic_key(written: bytes) -> str:
    """A key as clients of schema registries send it: its id is the user, its secret the password."""
    try:
        user, _, password = b64decode(written, validate=True).decode("latin-1").partition(":")
    except BinasciiError:
        return ""
    return f"{user}.{password}"


def key_sent(request: Request) -> str:
    sent = request.header(b"authorization") or b""
    scheme, _, key = sent.partition(b" ")
    if scheme.lower() == b"bearer":
        return key.strip().decode("latin-1")
    if scheme.lower() == b"basic":
        return _basic_key(key.strip())
    return (request.header(b"x-api-key") or b"").strip().decode("latin-1")
