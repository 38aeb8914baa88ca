"""Who is at the door: the host they think we are, the page they come from, the key they hold."""

import re
from asyncio import AbstractEventLoop
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ...api.principals import LOCAL
from ...broker.authorise import READING, authorise
from ...errors import BadRequest, Forbidden, ForbiddenOrigin, TooManyRequests, Unauthenticated
from ..audit import AuditLog
from ..keys import KeyRing
from ..settings import Settings
from .key_ends import KeyEnds
from .refusals import Refusals
from .requests import Request

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# Guessing 256 bits is hopeless; this only keeps somebody who tries from costing anything.
_FAILURES_MAX = 20
_FAILURES_S = 60.0
_ADDRESSES_KEPT = 10_000
# A name has 253 characters, a port five.
_HOST_BYTES_MAX = 300
# An address in brackets, or a name, which may be missing; neither a user before it nor a path behind it.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]*))(?::[0-9]{0,5})?")
_SAFE = frozenset({"GET", "HEAD"})
# What browsers say of a request that no other page made: typed, or from our own pages. Other clients say nothing.
_OWN_SITES = frozenset({None, b"none", b"same-origin"})


class Gate:
    """Asked before every route. Without keys (`auth.enabled: false`) whoever reaches us is the local administrator."""

    def __init__(
        self,
        settings: Settings,
        keys: KeyRing,
        audit: AuditLog,
        now: Callable[[], float],
        loop: AbstractEventLoop,
    ) -> None:
        self.keys, self.audit, self._now = keys, audit, now
        self.ends = KeyEnds(keys, loop)
        self.refusals = Refusals(audit, now)
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        self.is_on = settings.auth.enabled
        self._hosts = _LOOPBACK | {one.lower() for one in settings.http.allowed_hosts}
        # With keys a foreign name does no harm: a page that we do not know has none to show.
        self._is_any_host = self.is_on and not settings.http.allowed_hosts
        self._origins = frozenset(one.lower() for one in settings.http.allowed_origins)

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
        if request.scope["method"] not in _SAFE or request.action not in READING:
            raise ForbiddenOrigin(
                "a page of another site may not have a browser do this; list its origin in "
                "http.allowed_origins and have it use CORS"
            )

    def identify(self, request: Request, route: str) -> None:
        """Find out who asks. Unauthenticated without a good key."""
        if not self.is_on:
            request.principal, request.credential = LOCAL, None
            return
        sent = key_sent(request)
        found = self.keys.find(sent)
        if found is None:
            where = f"{request.scope['method']} {route}"
            self.refusals.note(request.client, "authenticate", where)
            # A good key is never turned away: others may try theirs from the same address.
            if sent:
                self._count_failure(request.client)
            raise Unauthenticated(
                "send a key that is known and not expired: Authorization: Bearer ID.SECRET"
            )
        request.principal, request.credential = found

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
        topic = str(error.fields.get("topic", ""))
        self.refusals.note(request.principal.name, request.action.value, topic)

    def check_prefixes(self, request: Request, prefixes: Sequence[str]) -> None:
        """Forbidden, unless a key with these prefixes reaches nothing that the caller's does not."""
        principal = request.principal
        if not principal.covers(prefixes):
            self.refusals.note(principal.name, request.action.value, ", ".join(prefixes))
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


def key_sent(request: Request) -> str:
    sent = request.header(b"authorization") or b""
    scheme, _, key = sent.partition(b" ")
    if scheme.lower() == b"bearer":
        return key.strip().decode("latin-1")
    return (request.header(b"x-api-key") or b"").strip().decode("latin-1")
