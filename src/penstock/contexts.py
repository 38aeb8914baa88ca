"""Which server is meant: by a name from a file of contexts, or by the environment.

The file has the address of each server and where its key is, but never the key itself.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from .errors import FileMissing, NotFound, Refused

FILE_VARIABLE = "PENSTOCK_CONTEXTS"
CONTEXT_VARIABLE = "PENSTOCK_CONTEXT"
SERVER_VARIABLE = "PENSTOCK_SERVER"
KEY_VARIABLE = "PENSTOCK_KEY"
CA_FILE_VARIABLE = "PENSTOCK_CA_FILE"
DEFAULT_SERVER = "penstock://127.0.0.1:9092"
NAME_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Context:
    """A server. Its key is in a file or in a variable of the environment; without both it needs none."""

    server: str
    key_file: str | None = None
    key_env: str | None = None
    ca_file: str | None = None

    def key(self) -> str | None:
        if self.key_env is not None:
            found = os.environ.get(self.key_env)
            if not found:
                raise Refused(f"the key of this context is expected in {self.key_env}: it is empty")
            return found
        return None if self.key_file is None else read_key(Path(self.key_file))

    def to_json(self) -> dict[str, str]:
        fields = {"key_file": self.key_file, "key_env": self.key_env, "ca_file": self.ca_file}
        return {"server": self.server} | {name: one for name, one in fields.items() if one}


def read_key(path: Path) -> str:
    """Returns the key in a file, its one line. FileMissing; Refused: it is no key file. Errors never show the key."""
    try:
        text = path.expanduser().read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise FileMissing(f"the key file {path}") from None
    except UnicodeDecodeError:
        raise Refused(f"{path} is not a key file: it holds no text") from None
    if not text or len(text.split()) != 1:
        raise Refused(f"{path} is not a key file: it should hold one key and nothing else")
    return text


@dataclass(slots=True)
class Contexts:
    """All contexts of a user, and the current one."""

    current: str | None = None
    by_name: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        if name not in self.by_name:
            raise NotFound("context", name[:NAME_CHARACTERS_MAX])
        return self.by_name[name]

    def add(self, name: str, context: Context) -> None:
        """Add or replace a context. The first one becomes the current one. Refused: a wrong name."""
        if not name.isprintable() or not 0 < len(name) <= NAME_CHARACTERS_MAX or " " in name:
            raise Refused(f"a context's name has 1 to {NAME_CHARACTERS_MAX} characters, no spaces")
        self.by_name[name] = context
        self.current = self.current or name

    def remove(self, name: str) -> None:
        self.get(name)
        del self.by_name[name]
        if self.current == name:
            self.current = None

    def use(self, name: str) -> None:
        self.get(name)
        self.current = name


def server_and_key(
    server: str | None = None, name: str | None = None
) -> tuple[Context, str | None]:
    """The server that is named, by its address or its context, and its key.

    If neither is given, the environment names it, then the current context; otherwise it is the broker of this machine.
    With a context only its own key and certificates count, not those of the environment. NotFound: no such context.
    """
    if server is None and name is None:
        server = os.environ.get(SERVER_VARIABLE) or None
        name = None if server else os.environ.get(CONTEXT_VARIABLE) or None
    if server is None:
        known = read_contexts(contexts_path())
        name = name or known.current
        if name is not None:
            found = known.get(name)
            return found, found.key()
    ca_file = os.environ.get(CA_FILE_VARIABLE) or None
    # An empty address is the caller's mistake, such as a variable that is not set: it is refused as any other.
    where = DEFAULT_SERVER if server is None else server
    return Context(where, ca_file=ca_file), os.environ.get(KEY_VARIABLE)


def contexts_path() -> Path:
    if given := os.environ.get(FILE_VARIABLE):
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "penstock" / "contexts.json"


def read_contexts(path: Path) -> Contexts:
    """Returns the contexts in a file, none if there is no file. Refused: it is another kind of file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        by_name = {str(name): Context(**one) for name, one in found["contexts"].items()}
        current = found.get("current")
        return Contexts(current if current in by_name else None, by_name)
    except FileNotFoundError:
        return Contexts()
    except (ValueError, TypeError, AttributeError, KeyError):
        raise Refused(f"{path} is not a file of contexts; move it away, or repair it") from None
