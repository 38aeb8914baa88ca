"""The parameters of a run, drawn from its seed: topic, clients, faults. Each seed switches some off (swarm testing)."""

from dataclasses import dataclass, replace
from random import Random

from ..api.groups import Mode
from ..config import TopicConfig, TtlAction
from .durability import Model

# One seed in so many has a disk that says "synced" and does nothing.
_LYING_ONE_IN = 12
_ASSIGNED_ONE_IN = 4
_DELAYING_ONE_IN = 3
_ADMINISTERED_ONE_IN = 4
_REGISTERED_ONE_IN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a run is made of. `draw_parameters` draws them from a seed."""

    partitions: int
    groups: int
    members_each: int
    config: TopicConfig
    ttl_one_in: int
    kinds_of_faults: tuple[str, ...]
    fault_every_ms: int
    model: Model
    is_lying: bool
    has_priorities: bool
    # Members of one more group, which is assigned; 0 in most seeds.
    assigned_members: int = 0
    is_strict: bool = False
    delay_producers: int = 0
    administrators: int = 0
    transaction_producers: int = 0
    commit_writers: int = 0
    # Whether these two consume, too, and answer inside.
    has_transaction_inputs: bool = False
    # Whether they delay some of their messages.
    has_transaction_delays: bool = False
    schedule_owners: int = 0
    schema_registrants: int = 0
    # Moments that faults are aimed at; all there are if it names none.
    aims: tuple[str, ...] = ()
    # Lost files, and as many older parts, that are tried at each start.
    file_losses_per_start: int = 1

    @property
    def assigned_mode(self) -> Mode:
        return Mode.STRICT if self.is_strict else Mode.RELAXED


# Every seed has the first, and some of the others.
ALWAYS_FAULTS = ("power cut", "power cut", "kill")
SOME_FAULTS = ("clock step", "slow disk", "full disk", "sync failed", "restart", "cut in a call")


def draw_parameters(seed: int) -> Parameters:
    parameters = _draw_shared(seed)
    if seed % _DELAYING_ONE_IN == _DELAYING_ONE_IN - 1:
        parameters = replace(parameters, delay_producers=2, has_transaction_delays=True)
    if seed % _ADMINISTERED_ONE_IN == 1:
        parameters = replace(parameters, administrators=1)
    if seed % _REGISTERED_ONE_IN == 0:
        parameters = replace(parameters, schema_registrants=1)
    return (
        with_assigned(parameters, seed)
        if seed % _ASSIGNED_ONE_IN == _ASSIGNED_ONE_IN - 1
        else parameters
    )


def with_assigned(parameters: Parameters, seed: int) -> Parameters:
    """Returns the parameters with an assigned group, and with enough partitions to move between members."""
    entropy = Random(f"assigned {seed}")  # noqa: S311  # A simulation has to be repeatable.
    return replace(
        parameters,
        partitions=entropy.choice((2, 3, 4)),
        groups=1,
        assigned_members=entropy.choice((2, 3, 3)),
        is_strict=entropy.random() < 0.5,
    )


def _draw_shared(seed: int) -> Parameters:
    entropy = Random(f"terms {seed}")  # noqa: S311  # A simulation has to be repeatable.
    some = tuple(kind for kind in SOME_FAULTS if entropy.random() < 0.7)
    return Parameters(
        partitions=entropy.choice((1, 1, 2)),
        groups=entropy.choice((1, 2, 2)),
        members_each=entropy.choice((1, 2, 3)),
        config=_draw_config(entropy),
        ttl_one_in=entropy.choice((0, 0, 4)),
        kinds_of_faults=ALWAYS_FAULTS + some,
        fault_every_ms=entropy.choice((1500, 2500, 4000)),
        model=entropy.choice(tuple(Model)),
        is_lying=seed % _LYING_ONE_IN == _LYING_ONE_IN - 1,
        has_priorities=seed % 3 == 1,
    )


def _draw_config(entropy: Random) -> TopicConfig:
    return TopicConfig(
        segment_size_bytes=entropy.choice((1500, 4000)),
        retention_bytes=entropy.choice((-1, 6000, 12_000)),
        keep_unread=entropy.random() < 0.5,
        visibility_timeout_ms=entropy.choice((800, 2000, 5000)),
        max_retries=entropy.choice((0, 1, 3, 3, -1)),
        backoff_base_ms=entropy.choice((0, 100, 400)),
        backoff_max_ms=2000,
        backoff_jitter=entropy.random() < 0.3,
        max_in_flight=entropy.choice((8, 40, 10_000)),
        max_in_flight_per_consumer=entropy.choice((3, 1000)),
        ttl_action=entropy.choice(tuple(TtlAction)),
        dlq_enabled=entropy.random() < 0.85,
        compression=entropy.choice(("none", "none", "lz4")),
        max_backlog_messages=entropy.choice((-1, -1, 60)),
    )
