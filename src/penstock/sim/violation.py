"""The promises that a simulation checks, and the error for a broken one."""

from enum import Enum


class Checker(Enum):
    """Names of the promises, as reports and docs/simulation.md call them."""

    NO_ACKED_LOSS = "NoAckedLoss"
    NO_PHANTOM = "NoPhantom"
    OFFSET_UNIQUE = "OffsetUnique"
    NO_DUP = "NoDup"
    DENSE = "Dense"
    ORDER = "Order"
    COMMIT_SAFE = "CommitSafe"
    LEASE_EXCLUSIVE = "LeaseExclusive"
    ATTEMPTS = "Attempts"
    DLQ_ATOMIC = "DLQAtomic"
    EXPIRY = "Expiry"
    DELAY = "Delay"
    SCHEDULE = "Schedule"
    KEYS = "Keys"
    TRANSACTION = "TransactionAtomic"
    NAMED_COMMIT = "NamedCommitOnce"
    SCHEMAS = "Schemas"
    RECOVERY = "RecoveryIdempotent"
    IN_FLIGHT = "InFlight"
    OWNED_ONCE = "OwnedOnce"
    FENCED = "Fenced"
    OWNER = "Owner"
    STRICT_ORDER = "StrictOrder"
    LANE_ORDER = "LaneOrder"
    LIVENESS = "Liveness"
    DAMAGE_TOLD = "DamageTold"
    JOURNEY = "Journey"
    # Not a promise of its own: the code under test raised something that no caller is told to expect.
    SURPRISE = "Surprise"


class Violation(AssertionError):
    """A promise was broken. `World.run` adds a note: the last events and the command that repeats the run."""

    def __init__(self, checker: Checker, story: str) -> None:
        super().__init__(f"{checker.value}: {story}")
        self.checker, self.story = checker, story
