"""Dead letters for Kafka's clients: headers tell where a message came from, and why it died."""

from ...api.dead_letters import DEAD_LETTER_SUFFIX, split_headers
from ...broker.partition.queue_headers import DEAD_LETTER_PREFIX
from ...model import Headers, Provenance

_NS_A_MS = 1_000_000
_TIMES = frozenset({"original_timestamp", "first_delivery", "last_delivery", "dlq_timestamp"})
# The field, the header: `original_topic` is `penstock-dlq-original-topic`, `dlq_reason` is `penstock-dlq-reason`.
_NAMES = [
    (field, DEAD_LETTER_PREFIX + field.removeprefix("dlq_").replace("_", "-"))
    for field in Provenance.__struct_fields__
]


def holds_dead_letters(topic: str) -> bool:
    return topic.endswith(DEAD_LETTER_SUFFIX)


def told_headers(headers: Headers) -> Headers:
    """The headers of a stored dead letter as a Kafka client gets them; those of another message as they are."""
    own, provenance = split_headers(headers)
    return own if provenance is None else (*own, *provenance_headers(provenance))


def provenance_headers(provenance: Provenance) -> Headers:
    """All of it as text; times in milliseconds, as everywhere in Kafka."""
    return [(name, _text(field, getattr(provenance, field)).encode()) for field, name in _NAMES]


def _text(field: str, value: str | int) -> str:
    if field in _TIMES:
        assert isinstance(value, int), "a time in nanoseconds"
        return str(value // _NS_A_MS)
    return str(value)
