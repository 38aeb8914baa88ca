"""What a broker serves over HTTP alone: the address that it told in hello, and one request to it."""

import json
import ssl
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from ..api.error_reply import ErrorReply, rebuilt_error
from ..errors import BadAnswer, Unreachable
from .failures import reason_of
from .settings import ClientSettings

if TYPE_CHECKING:
    from .synchronous.client import Client

_UNAVAILABLE = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_OWN_FIELDS = frozenset({"error", "message", "status", "retry_after_ms"})


def http_path(*words: str, **query: object) -> str:
    """A path of words, each quoted, with a query of what is not None."""
    path = "".join(f"/{quote(one, safe='')}" for one in words)
    given = {name: one for name, one in query.items() if one is not None}
    return f"{path}?{urlencode(given)}" if given else path


def http_call(
    address: str,
    key: str,
    settings: ClientSettings,
    *,
    path: str,
    method: str = "GET",
    body: object = None,
) -> Any:
    """The JSON of an answer, None if it has no content. Raises the error that it has instead; Unreachable."""
    if not address:
        raise Unreachable("the broker", "it does not serve HTTP")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    data = None
    if body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    request = Request(address + path, data, headers, method=method)  # noqa: S310 - the broker's own address
    tls: ssl.SSLContext | None = None
    if address.startswith("https"):
        tls = settings.tls_context()
    try:
        with urlopen(request, timeout=settings.timeout_s, context=tls) as answer:  # noqa: S310 - as above
            content = answer.read()
            return json.loads(content) if content else None
    except HTTPError as error:
        raise _error_of(error, address) from None
    except URLError as error:
        reason = error.reason
        words = reason_of(reason) if isinstance(reason, Exception) else str(reason)
        raise Unreachable(address, words, is_sent=True) from None
    except (OSError, ValueError) as error:
        raise BadAnswer(address, str(error)[:200], is_sent=True) from None


def _error_of(error: HTTPError, address: str) -> Exception:
    try:
        found = json.loads(error.read())
        code, text = str(found["error"]), str(found.get("message") or found["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return BadAnswer(address, f"status {error.code}", is_sent=True)
    fields = {name: one for name, one in found.items() if name not in _OWN_FIELDS}
    is_retriable, wait_ms = error.code in _UNAVAILABLE, found.get("retry_after_ms")
    return rebuilt_error(ErrorReply(code, text, is_retriable, wait_ms, fields))


def client_call(client: "Client", path: str, method: str = "GET", body: object = None) -> Any:
    """A call with the key of a client to the HTTP address of its broker."""
    connector = client.connector
    address = connector.hello().http
    return http_call(
        address, connector.key, connector.settings, path=path, method=method, body=body
    )
