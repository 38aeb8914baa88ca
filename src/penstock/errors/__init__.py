"""Everything Penstock says no with.

    PenstockError
      Refused                the request is wrong; repeating it will not help
        InvalidName
        InvalidConfig
        MalformedBatch       bytes that are not a batch
          ChecksumMismatch
          UnsupportedFormat
        TooLarge             over a configured limit
          NeverFits          more at once than a backlog may hold at all
        OffsetOutOfRange
        AlreadyOpen          another process owns the directory
        WrongLog             the directory belongs to another log
        FileMissing
        NotFound             no such topic, partition, group or message
          UnknownMember      not a member of the group (any more): join again
          SoftDeleted        a subject or version that is deleted, but can be had back
          NotSoftDeleted     a subject or version that has to be deleted before it goes for good
          TraceNotFound      no message of a trace, as far as the search came
          UnknownStaging     no such staging of a named commit: it expired, was dropped, or never was
        InvalidSchema        a schema that cannot be read, or is too large or too complex
        IncompatibleSchema   a schema that its subject's compatibility level does not allow
        SchemaInUse          other schemas refer to it
        InvalidSubject       a name that no subject may have
        SchemaModeRefused    the mode of the registry, or of the subject, or an imported id does not allow it
            SchemasReadOnly      the mode is READONLY
        AlreadyExists
        ShareFull            the key, or all keys together, have as many of something as they may
        StaleReceipt         the lease is over, or belongs to another consumer
        GroupBusy            it has members, or they hold messages, so the group cannot be reset
        StaleGeneration      the group was assigned anew since
        NotOwner             the partition belongs to another member
        ModeConflict         the group reads this topic in another way
        NotPending           a delayed message that has fired, or was cancelled
        OutOfSequence        a producer skipped a sequence, repeated an old one, or was replaced
        ProducerFenced       the epoch is not the producer's any more: it has a newer session, or its transaction ended
        TransactionEnded     it was committed, or aborted, and the other is asked for
        TransactionInProgress    the last one is decided and being applied: try again
        CommitNameTaken      another writer commits under this name
        SequenceCommitted    a staging for a sequence that is committed
        RepeatDiffers        a commit of a sequence that is committed, with something else in it
        Fenced               a node of a later epoch leads, or has been promised to
        StagingMismatch      a staging that is not of this commit, or does not hold what the commit says
        CommitInProgress     the last commit of this name is being applied: try again
        OverCommitQuota      too many stagings under one name of commits
        WrongOwner           another member holds the message
        NotHeld              the member does not hold the message, or never had it
        InvalidSettings      a configuration with mistakes, all of them
        Unauthenticated      no key, or not a good one
        Forbidden            a good key that may not do this
        ForbiddenOrigin      a web page, or a name, that this server does not answer to
        LastAdministrator    a key that is not revoked unless forced: only it can change keys
        Cancelled            the client asked for the end of a request that waited
        BadRequest           what was sent cannot be read
          MethodNotAllowed
          UnsupportedMediaType
          TooSlow            the sender took too long
      Unavailable            the request is fine; try again
        NoSpace
        BacklogFull          consumers are too far behind
        OverStagingQuota     too much is staged and not committed
        PartitionFaulty      the files of a partition are damaged or missing; the others serve
        PartlyPublished      some of the messages of a call were stored, others not
        TooManyRequests      over a rate or a number of requests at once
        Draining             about to stop
        NotLeader            this node copies another one, which is named; or waits to hear which one leads
          LeaderUnknown      no node is known to lead
        NotEnoughReplicas    the standby is away, and what is asked for has to be on both machines; nothing was done
        PromotionRaced       another node leads, or is promoted, at this moment
        Unconfirmed          the standby has not confirmed in time: it may be there or not
        Unreachable          no server answers at the address, or it left in the middle
          AnswerTimeout      the server took too long
          BadAnswer          what came back is not an answer of a broker
      Damaged                stored bytes are not what was written; never repaired silently
        DamagedBatch
        DamagedFile
        HistoryLost          a replica would have to cut what it knows to be committed
      Internal               a bug of ours; the broker's log has the traceback
      Fatal                  the process must stop: nothing it says can be trusted any more
        SyncFailed
        DiskFailed

Every class has a stable `code`, says whether a retry can help, and carries its facts in `fields`, so that a
protocol can translate it without reading the text. A broken invariant of our own is an `assert`, not an error.
The modules are by subject; users import the classes from here.
"""

from .access import (
    Forbidden,
    ForbiddenOrigin,
    LastAdministrator,
    Unauthenticated,
)
from .batches import (
    ChecksumMismatch,
    MalformedBatch,
    UnsupportedFormat,
)
from .connection import (
    AnswerTimeout,
    BadAnswer,
    Unreachable,
)
from .families import (
    Damaged,
    Fatal,
    Internal,
    PenstockError,
    Refused,
    Unavailable,
)
from .groups import (
    GroupBusy,
    ModeConflict,
    NotHeld,
    NotOwner,
    StaleGeneration,
    StaleReceipt,
    TooManyGroups,
    UnknownMember,
    WrongOwner,
)
from .load import (
    BacklogFull,
    Draining,
    PartlyPublished,
    ShareFull,
    TooManyRequests,
)
from .replication import (
    Fenced,
    HistoryLost,
    LeaderUnknown,
    NotEnoughReplicas,
    NotLeader,
    PromotionRaced,
    Unconfirmed,
)
from .requests import (
    AlreadyExists,
    BadRequest,
    Cancelled,
    InvalidConfig,
    InvalidName,
    InvalidSettings,
    MethodNotAllowed,
    NeverFits,
    NotFound,
    NotPending,
    OffsetOutOfRange,
    TooLarge,
    TooSlow,
    TraceNotFound,
    UnsupportedMediaType,
)
from .schemas import (
    IncompatibleSchema,
    InvalidSchema,
    InvalidSubject,
    NotSoftDeleted,
    SchemaInUse,
    SchemaModeRefused,
    SchemasReadOnly,
    SchemaViolation,
    SoftDeleted,
)
from .storage import (
    AlreadyOpen,
    DamagedBatch,
    DamagedFile,
    DiskFailed,
    FileMissing,
    NoSpace,
    PartitionFaulty,
    SyncFailed,
    WrongLog,
)
from .transactions import (
    CommitInProgress,
    CommitNameTaken,
    OutOfSequence,
    OverCommitQuota,
    OverStagingQuota,
    ProducerFenced,
    RepeatDiffers,
    SequenceCommitted,
    StagingMismatch,
    TransactionEnded,
    TransactionInProgress,
    UnknownStaging,
)

__all__ = [
    "AlreadyExists",
    "AlreadyOpen",
    "AnswerTimeout",
    "BacklogFull",
    "BadAnswer",
    "BadRequest",
    "Cancelled",
    "ChecksumMismatch",
    "CommitInProgress",
    "CommitNameTaken",
    "Damaged",
    "DamagedBatch",
    "DamagedFile",
    "DiskFailed",
    "Draining",
    "Fatal",
    "Fenced",
    "FileMissing",
    "Forbidden",
    "ForbiddenOrigin",
    "GroupBusy",
    "HistoryLost",
    "IncompatibleSchema",
    "Internal",
    "InvalidConfig",
    "InvalidName",
    "InvalidSchema",
    "InvalidSettings",
    "InvalidSubject",
    "LastAdministrator",
    "LeaderUnknown",
    "MalformedBatch",
    "MethodNotAllowed",
    "ModeConflict",
    "NeverFits",
    "NoSpace",
    "NotEnoughReplicas",
    "NotFound",
    "NotHeld",
    "NotLeader",
    "NotOwner",
    "NotPending",
    "NotSoftDeleted",
    "OffsetOutOfRange",
    "OutOfSequence",
    "OverCommitQuota",
    "OverStagingQuota",
    "PartitionFaulty",
    "PartlyPublished",
    "PenstockError",
    "ProducerFenced",
    "PromotionRaced",
    "Refused",
    "RepeatDiffers",
    "SchemaInUse",
    "SchemaModeRefused",
    "SchemaViolation",
    "SchemasReadOnly",
    "SequenceCommitted",
    "ShareFull",
    "SoftDeleted",
    "StagingMismatch",
    "StaleGeneration",
    "StaleReceipt",
    "SyncFailed",
    "TooLarge",
    "TooManyGroups",
    "TooManyRequests",
    "TooSlow",
    "TraceNotFound",
    "TransactionEnded",
    "TransactionInProgress",
    "Unauthenticated",
    "Unavailable",
    "Unconfirmed",
    "UnknownMember",
    "UnknownStaging",
    "Unreachable",
    "UnsupportedFormat",
    "UnsupportedMediaType",
    "WrongLog",
    "WrongOwner",
]
