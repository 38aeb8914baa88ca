"""A request that is judged, on whatever port."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dear.names import Names
from dear.wires import FrameWire, HttpWire, KafkaWire, Wire

FRAME_BYTES_MAX = 32 << 20
"""What a broker takes as one frame, or as one body, if nothing else is set."""
Prepare = Callable[[FrameWire, Names], None]
"""Makes what a request then destroys, as an administrator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DearRequest:
    """One request, the dearest of its form. `make` says its bytes, again for each round, so that none are kept."""

    port: str
    family: str
    name: str
    make: Callable[[], bytes]
    # Of Kafka: api key and version.
    api: tuple[int, int] = (0, 0)
    times: int = 1
    prepare: Prepare | None = None
    # The role of the key that asks; the one asked for at the command line, if it is empty.
    role: str = ""
    answers: frozenset[str] = field(default_factory=frozenset)
    """What a documented answer begins with; nothing: any but silence."""

    def __str__(self) -> str:
        return f"{self.port} {self.name}"

    def connect(self, binary: int, http: int, key: str, patience_s: float) -> Wire:
        if self.port == "http":
            return HttpWire(http, key, patience_s)
        if self.port == "kafka":
            return KafkaWire(binary, key, patience_s, self.api)
        return FrameWire(binary, key, patience_s)
