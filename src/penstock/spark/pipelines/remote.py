"""How a pipeline reaches the broker, from the driver and from every task."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...client.address import checked_key
from ...client.retry import RetryPolicy
from ...client.settings import ClientSettings
from ...errors import Refused
from ..option_reader import named_server, require_answer

if TYPE_CHECKING:
    from ...client import Client

# 25 s in all: a broker that is started again is back by then.
RETRIES = 8


@dataclass(frozen=True, slots=True)
class Remote:
    """Address of the broker and name of the file with the key. It is sent to tasks, so it never holds the key."""

    url: str
    key_file: str | None = None
    ca_file: str | None = None
    retries: int = RETRIES
    # The variable that has the key, here and in tasks, if it is in no file.
    key_variable: str | None = None

    @classmethod
    def named(cls, url: str | None, key_file: str | None, ca_file: str | None) -> "Remote":
        """That of an address, or without one the server that `penstock` on this machine means. NotFound."""
        known, variable = named_server(url)
        key_file = key_file or known.key_file
        return cls(
            known.server,
            key_file,
            ca_file or known.ca_file,
            key_variable=None if key_file else variable,
        )

    def require_broker(self) -> None:
        """Unreachable after some 2 seconds, if nothing answers."""
        require_answer(self.connect)

    def key(self) -> str | None:
        if self.key_variable is not None:
            return checked_key(os.environ.get(self.key_variable, "").strip())
        if self.key_file is None:
            return None
        try:
            return Path(self.key_file).read_text().strip()
        except OSError as error:
            raise Refused(f"{self.key_file}: {error.strerror}") from None

    def connect(self) -> "Client":
        from ...client import Client

        settings = ClientSettings(retry=RetryPolicy(retries=self.retries), ca_file=self.ca_file)
        return Client(self.url, key=self.key(), settings=settings)
