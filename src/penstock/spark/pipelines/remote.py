"""How a pipeline reaches the broker, from the driver and from every task."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...client.retry import RetryPolicy
from ...client.settings import ClientSettings
from ...errors import Refused

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

    def key(self) -> str | None:
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
