"""A message in the hands of a member, with the proof that it is theirs."""

from ..model import Headers, Priority, Provenance, Valued
from .receipts import Place, write_receipt

# Their order for people: what was put first, then the delivery.
_SHOWN = (
    "value",
    "key",
    "headers",
    "priority",
    "timestamp",
    "expires_at",
    "idempotency_key",
    "schema_id",
    "offset",
    "attempts",
    "lease",
    "place",
)


class Received(Valued, frozen=True, gc=False):
    """A message and the lease under which it was handed out. `attempts` counts deliveries from 1."""

    # What every message has comes first: most have nothing else, and what is not said costs nothing to make.
    offset: int
    timestamp: int
    attempts: int
    lease: int
    place: Place
    key: bytes | None = None
    headers: Headers = ()
    priority: int = int(Priority.NORMAL)
    expires_at: int | None = None
    idempotency_key: bytes | None = None
    schema_id: int | None = None
    provenance: Provenance | None = None

    @property
    def dead_letter(self) -> Provenance | None:
        """Where it came from and why it died, if it is of a topic of dead letters."""
        return self.provenance

    def __repr__(self) -> str:
        return f"Received({', '.join(f'{name}={getattr(self, name)!r}' for name in _SHOWN)})"

    @property
    def id(self) -> int:
        """The number of the message in a queue of one partition, counted from 1."""
        return self.offset + 1

    @property
    def receipt(self) -> str:
        return write_receipt(self.place, self.offset, self.attempts, self.lease)

    @property
    def topic(self) -> str:
        return self.place.topic

    @property
    def partition(self) -> int:
        return self.place.partition
