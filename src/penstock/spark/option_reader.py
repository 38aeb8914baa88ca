"""Reads the options of a query: what an option is, which of them are known, and how the text of each is parsed.

Source and sink each have a table of options; both refuse an unknown or a wrong one by name.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from ..client import Client, ClientSettings, RetryPolicy
from ..client.address import checked_key
from ..contexts import KEY_VARIABLE, Context, server_and_key
from ..errors import Refused, Unauthenticated, Unreachable
from ..model import check_name

DEFAULT_URL = "penstock://127.0.0.1:9092"
_BACKOFF_MS = 200
_PLAN_PAUSES_S = (0.2, 0.4, 0.8)
_KEY_BYTES_MAX = 4096
# Options of Kafka's client in Spark's Kafka source and sink begin with this word.
_OF_KAFKA = "kafka."
Choice = TypeVar("Choice", bound=Enum)


class UsedBy(Enum):
    """The kinds of query that take an option."""

    BOTH = "both"
    BATCH = "batch"
    STREAM = "stream"


class Option(NamedTuple):
    """One option, and what the guide says of it."""

    name: str
    used_by: UsedBy
    default: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """How to reach the broker. Spark sends it to the executors: the name of the key's file, never the key."""

    # The longest pause between two tries. A broker that asks for a longer one is not asked again.
    pause_ms_max: ClassVar[int] = 5000
    url: str = DEFAULT_URL
    api_key_file: str | None = None
    # The variable that has the key, here and on the executors, if it is in no file.
    key_variable: str | None = None
    ca_file: str | None = None
    retries: int = 9

    def require_broker(self) -> None:
        """Unreachable after some 2 seconds, if nothing answers: a query is planned, and its tasks would wait longer."""
        require_answer(self.connect)

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """A client, closed at the end of the block. Refused: the file cannot be read, or holds more than a key."""
        with self.naming_key(), self.client() as client:
            yield client

    @contextmanager
    def naming_key(self) -> Iterator[None]:
        """An error of the block over a key names the option: the broker knows none, and speaks of headers."""
        try:
            yield
        except Unauthenticated as error:
            named = self.api_key_file or self.key_variable or "is not given"
            raise Unauthenticated(f"{error} (option apiKeyFile: {named})") from error

    def client(self) -> Client:
        """Returns a client, which the caller closes. Refused: the file cannot be read, or holds more than a key."""
        policy = RetryPolicy(
            retries=self.retries, backoff_ms=_BACKOFF_MS, backoff_ms_max=self.pause_ms_max
        )
        settings = ClientSettings(retry=policy, ca_file=self.ca_file)
        key, file = None, self.api_key_file
        if self.key_variable is not None:
            key = checked_key(os.environ.get(self.key_variable, "").strip())
        if file is not None:
            try:
                with Path(file).open(encoding="utf-8") as opened:
                    key = checked_key(opened.read(_KEY_BYTES_MAX).strip())
            except (OSError, UnicodeDecodeError, Refused) as error:
                reason = getattr(error, "strerror", None) or error
                raise Refused(f"apiKeyFile {file}: {reason}") from None
        return Client(self.url, key=key, settings=settings)


def require_answer(connect: Callable[[], AbstractContextManager[Client]]) -> None:
    """Unreachable after some 2 seconds, if nothing answers."""
    for pause_s in (*_PLAN_PAUSES_S, None):
        try:
            with connect() as client:
                client.connector.hello()
            return
        except Unreachable:
            if pause_s is None:
                raise
            time.sleep(pause_s)


def named_server(url: str | None) -> tuple[Context, str | None]:
    """The server, and the variable that has its key, if it is in no file. Without `url` it is what `penstock` means.

    That is the one of PENSTOCK_SERVER, of PENSTOCK_CONTEXT, or of the current context. NotFound: no such context.
    """
    if url is not None:
        return Context(url), None
    known, key = server_and_key()
    is_in_variable = key is not None and known.key_file is None
    return known, (known.key_env or KEY_VARIABLE) if is_in_variable else None


def known_options(
    given: Mapping[str, str], options: Sequence[Option], used_by: UsedBy | None
) -> dict[str, str]:
    """Returns the options by their proper names; capitals do not matter. Refused: unknown, or not for this query."""
    by_name, found = {one.name.lower(): one for one in options}, {}
    for name, value in given.items():
        option = by_name.get(name.lower())
        if name.lower().startswith(_OF_KAFKA):
            raise Refused(f"unknown option {name!r}: {_instead_of(name.lower())}")
        if option is None:
            near = get_close_matches(name.lower(), by_name, n=1, cutoff=0.5)
            meant = f"; did you mean {by_name[near[0]].name}?" if near else "."
            names = ", ".join(one.name for one in options)
            raise Refused(f"unknown option {name!r}{meant} There are: {names}")
        if used_by is not None and option.used_by not in {UsedBy.BOTH, used_by}:
            raise Refused(f"option {option.name} is for a {option.used_by.value} only")
        found[option.name] = str(value)
    return found


def _instead_of(name: str) -> str:
    """Returns what stands here for an option of Kafka's client."""
    if name == "kafka.bootstrap.servers":
        return f"the address of the broker is the option url, such as {DEFAULT_URL}"
    return "there are none for Kafka's client; the address is the option url, the key apiKeyFile, certificates caFile"


class OptionReader:
    """Parses the text of options. Every method refuses a wrong value with the name of the option."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def text(self, name: str) -> str | None:
        return self.given.get(name, "").strip() or None

    def named(self, name: str) -> str | None:
        found = self.text(name)
        return None if found is None else check_name(found, name)

    def number(self, name: str, *, least: int = 1) -> int | None:
        found = self.text(name)
        if found is None:
            return None
        if not found.isascii() or not found.isdecimal() or len(found) > 18 or int(found) < least:
            raise Refused(f"option {name} must be a number of at least {least}, got {found[:40]!r}")
        return int(found)

    def flag(self, name: str, *, default: bool = False) -> bool:
        found = (self.text(name) or str(default)).lower()
        if found not in {"true", "false"}:
            raise Refused(f"option {name} must be true or false, got {found[:40]!r}")
        return found == "true"

    def one_of(self, name: str, kind: type[Choice], default: Choice) -> Choice:
        found = self.text(name)
        known = {one.value: one for one in kind}
        if found is not None and found.lower() not in known:
            raise Refused(f"option {name} must be one of {', '.join(known)}, got {found[:40]!r}")
        return default if found is None else known[found.lower()]

    def json(self, name: str) -> dict[str, Any] | None:
        """Returns a JSON object, or None for a plain word or no value."""
        found = self.text(name)
        if found is None or not found.startswith("{"):
            return None
        try:
            return dict(json.loads(found))
        except ValueError as error:
            raise Refused(f"option {name} is not JSON: {error}") from None

    def broker(self) -> dict[str, Any]:
        """Returns the fields of BrokerOptions. NotFound: no such context."""
        key_file = self.text("apiKeyFile")
        known, variable = named_server(self.text("url"))
        return {
            "url": known.server,
            "api_key_file": key_file or known.key_file,
            "key_variable": None if key_file else variable,
            "ca_file": self.text("caFile") or known.ca_file,
            "retries": self.retries(),
        }

    def retries(self) -> int:
        retries = self.number("retries", least=0)
        return 9 if retries is None else min(retries, 1000)
