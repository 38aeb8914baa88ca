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
        SchemasReadOnly      the mode of the registry, or of the subject, allows no change
        AlreadyExists
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
        Fenced               a node of a later epoch leads, or has been promised to
        StagingMismatch      a staging that is not of this commit, or does not hold what the commit says
        CommitInProgress     the last commit of this name is being applied: try again
        OverCommitQuota      too many names of commits, or stagings under one of them
        WrongOwner           another member holds the message
        NotHeld              the member does not hold the message, or never had it
        InvalidSettings      a configuration with mistakes, all of them
        Unauthenticated      no key, or not a good one
        Forbidden            a good key that may not do this
        ForbiddenOrigin      a web page, or a name, that this server does not answer to
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
"""

from collections.abc import Sequence
from typing import ClassVar


class PenstockError(Exception):
    """Base of the tree; never raised itself."""

    code: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.fields = fields


class Refused(PenstockError):
    """The caller's request is wrong."""

    code = "INVALID_ARGUMENT"


class InvalidName(Refused):
    code = "INVALID_NAME"

    def __init__(self, kind: str, name: str, *, length_max: int) -> None:
        # A hostile name may be megabytes long; the start is enough to recognise it.
        shown = name if len(name) <= 60 else name[:60] + "..."
        super().__init__(
            f"{shown!r} is not a {kind} name: 1 to {length_max} of A-Z a-z 0-9 . _ -, and not '.' or '..'",
            kind=kind,
            name=shown,
            length_max=length_max,
        )


class InvalidConfig(Refused):
    code = "INVALID_CONFIG"

    def __init__(self, setting: str, found: object, expected: str, *, said: str = "") -> None:
        super().__init__(
            said or f"{setting} must be {expected}, got {found!r}",
            setting=setting,
            found=found,
            expected=expected,
        )


class MalformedBatch(Refused):
    code = "MALFORMED_BATCH"

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(f"not a valid batch: {reason}", reason=reason, **fields)
        self.reason = reason


class ChecksumMismatch(MalformedBatch):
    code = "CHECKSUM_MISMATCH"

    def __init__(self, part: str, *, found: int, expected: int) -> None:
        super().__init__(
            f"checksum of the {part} is {found:#010x}, the bytes give {expected:#010x}",
            part=part,
            found=found,
            expected=expected,
        )


class UnsupportedFormat(MalformedBatch):
    code = "UNSUPPORTED_FORMAT"


class TooLarge(Refused):
    code = "TOO_LARGE"

    def __init__(self, what: str, *, found: int, limit: int) -> None:
        super().__init__(
            f"{what} is {found}, the limit is {limit}", what=what, found=found, limit=limit
        )


class NeverFits(TooLarge):
    """A call with more than a backlog may hold: to try again is no use, to send less at once is."""

    def __init__(self, unit: str, *, adding: int, limit: int) -> None:
        Refused.__init__(
            self,
            f"{adding} {unit} at once can never fit, max_backlog_{unit} is {limit}: send fewer at once",
            reason=f"backlog_{unit}",
            adding=adding,
            limit=limit,
        )


class OffsetOutOfRange(Refused):
    code = "OFFSET_OUT_OF_RANGE"

    def __init__(self, asked: int, *, start: int, end: int, what: str = "offset") -> None:
        super().__init__(
            f"{what} {asked} is outside [{start}, {end}]", asked=asked, start=start, end=end
        )


class AlreadyOpen(Refused):
    code = "ALREADY_OPEN"

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(f"{path} is already open in {holder}", path=path, holder=holder)


class WrongLog(Refused):
    code = "WRONG_LOG"

    def __init__(self, path: str, *, found: int, expected: int) -> None:
        super().__init__(
            f"{path} belongs to log {found:#018x}, not to {expected:#018x}",
            path=path,
            found=found,
            expected=expected,
        )


class FileMissing(Refused):
    code = "FILE_MISSING"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} does not exist", path=path)


class NotFound(Refused):
    code = "NOT_FOUND"

    def __init__(self, kind: str, name: object) -> None:
        super().__init__(f"there is no {kind} {name}", kind=kind, name=name)


class TraceNotFound(NotFound):
    """`cursor` is where to go on searching; None: there is no such trace."""

    code = "TRACE_NOT_FOUND"

    def __init__(self, trace_id: str, *, cursor: str | None = None, scanned_bytes: int = 0) -> None:
        more = (
            "" if cursor is None else f"; {scanned_bytes} bytes were searched: go on at the cursor"
        )
        Refused.__init__(
            self,
            f"there is no trace {trace_id}{more}",
            trace_id=trace_id,
            cursor=cursor,
            scanned_bytes=scanned_bytes,
        )
        self.cursor = cursor


class SoftDeleted(NotFound):
    code = "SOFT_DELETED"

    def __init__(self, kind: str, name: object) -> None:
        Refused.__init__(self, f"{kind} {name} is deleted", kind=kind, name=name)


class NotSoftDeleted(NotFound):
    code = "NOT_SOFT_DELETED"

    def __init__(self, kind: str, name: object) -> None:
        said = f"{kind} {name} is not deleted yet: delete it first, then permanently"
        Refused.__init__(self, said, kind=kind, name=name)


class InvalidSchema(Refused):
    code = "INVALID_SCHEMA"

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(f"not a valid schema: {reason[:1000]}", **fields)


class IncompatibleSchema(Refused):
    """A schema that its subject's compatibility level does not allow. `reasons` says where and why, version by
    version."""

    code = "INCOMPATIBLE_SCHEMA"

    def __init__(self, subject: str, level: str, reasons: Sequence[str]) -> None:
        super().__init__(
            f"the schema is not compatible with subject {subject} ({level}): {'; '.join(reasons)[:2000]}",
            subject=subject,
            level=level,
            reasons=list(reasons),
        )


class SchemaViolation(Refused):
    """A message that does not fit the schema of its topic.

    `part` is key or value, `path` where the fault is in it (a JSON pointer; empty for all of it), `index` which message
    of the request it is, `schema_id` what it was compared with, if there was anything.
    """

    code = "SCHEMA_VIOLATION"

    def __init__(
        self, topic: str, part: str, fault: tuple[str, str], *, subject: str, schema_id: int | None
    ) -> None:
        path, reason = fault
        where = f" at {path[:200]}" if path else ""
        of_schema = "" if schema_id is None else f", schema {schema_id}"
        super().__init__(
            f"the {part} does not fit subject {subject}{of_schema}{where}: {reason[:500]}",
            topic=topic,
            part=part,
            path=path[:200],
            reason=reason[:200],
            subject=subject,
            schema_id=schema_id,
            index=0,
        )


class SchemaInUse(Refused):
    code = "SCHEMA_IN_USE"

    def __init__(self, subject: str, version: int, users: Sequence[int]) -> None:
        shown = ", ".join(map(str, users[:20]))
        super().__init__(
            f"schemas refer to version {version} of subject {subject}, by id: {shown}",
            subject=subject,
            version=version,
        )


class SchemasReadOnly(Refused):
    code = "SCHEMAS_READ_ONLY"

    def __init__(self, subject: str) -> None:
        super().__init__(f"subject {subject} is read only (mode READONLY)", subject=subject)


class AlreadyExists(Refused):
    code = "ALREADY_EXISTS"

    def __init__(self, kind: str, name: object) -> None:
        super().__init__(f"{kind} {name} exists already", kind=kind, name=name)


class StaleReceipt(Refused):
    code = "STALE_RECEIPT"

    def __init__(self, receipt: str) -> None:
        super().__init__(
            f"receipt {receipt} is not the current lease: it expired, was answered, or was given back",
            receipt=receipt,
        )


class GroupBusy(Refused):
    code = "GROUP_BUSY"

    def __init__(self, group: str, *, in_flight: int, members: int = 0) -> None:
        has = f"{members} members, and " if members else ""
        super().__init__(
            f"group {group} has {has}{in_flight} messages in the hands of its members",
            group=group,
            in_flight=in_flight,
            members=members,
        )


class TooManyGroups(Refused):
    code = "TOO_MANY_GROUPS"

    def __init__(self, group: str, place: str, *, limit: int, setting: str) -> None:
        super().__init__(
            f"no room for group {group}: {place} may have {limit} groups ({setting})",
            group=group,
            limit=limit,
            setting=setting,
        )


class UnknownMember(NotFound):
    code = "UNKNOWN_MEMBER"

    def __init__(self, group: str, member: str) -> None:
        super().__init__("member", f"{member} in group {group}: join (again)")
        self.fields.update(group=group, member=member)


class StaleGeneration(Refused):
    code = "STALE_GENERATION"

    def __init__(self, group: str, *, asked: int, current: int) -> None:
        super().__init__(
            f"group {group} is in generation {current}, not {asked}: ask for the assignment first",
            group=group,
            asked=asked,
            generation=current,
        )


class NotOwner(Refused):
    code = "NOT_OWNER"

    def __init__(self, group: str, partition: str, *, member: str, owner: str) -> None:
        whose = f"belongs to {owner}" if owner else "belongs to no member"
        asks = f"not to {member}" if member else "and only its owner may do that"
        super().__init__(
            f"partition {partition} {whose} in group {group}, {asks}",
            group=group,
            partition=partition,
            member=member,
            owner=owner,
        )


class ModeConflict(Refused):
    code = "MODE_CONFLICT"

    def __init__(self, group: str, topic: str, *, asked: str, mode: str) -> None:
        super().__init__(
            f"group {group} reads {topic} as {mode}, not as {asked}; reset it while it is empty to change that",
            group=group,
            topic=topic,
            asked=asked,
            mode=mode,
        )


class NotPending(Refused):
    code = "NOT_PENDING"

    def __init__(self, identity: int, state: str) -> None:
        super().__init__(
            f"delayed message {identity} is not pending any more: {state}", id=identity, state=state
        )


class OutOfSequence(Refused):
    code = "OUT_OF_SEQUENCE"

    def __init__(self, producer: int, reason: str, *, next_sequence: int | None = None) -> None:
        """`next_sequence`: what is below it is stored; None if the epoch was replaced."""
        super().__init__(
            f"producer {producer}: {reason}",
            producer=producer,
            reason=reason,
            next_sequence=next_sequence,
        )


class Fenced(Refused):
    """A node spoke in an epoch that is over: another node leads in a later one, or was promised to."""

    code = "FENCED"

    def __init__(self, epoch: int, *, promised: int) -> None:
        super().__init__(
            f"epoch {epoch} is over, this node has promised to follow epoch {promised}",
            epoch=epoch,
            promised=promised,
        )


class ProducerFenced(Refused):
    code = "PRODUCER_FENCED"

    def __init__(self, producer_id: int, *, epoch: int, current: int, said: str = "") -> None:
        why = f" ({said})" if said else ""
        super().__init__(
            f"producer {producer_id} is in epoch {current}, not {epoch}{why}: begin a new session, "
            "and send the transaction again",
            producer_id=producer_id,
            epoch=epoch,
            current_epoch=current,
            reason=said,
        )


class TransactionEnded(Refused):
    code = "TRANSACTION_ENDED"

    def __init__(self, producer_id: int, state: str, reason: str) -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"the transaction of producer {producer_id} is {state} already{why}",
            producer_id=producer_id,
            state=state,
            reason=reason,
        )


class TransactionInProgress(Refused):
    code = "TRANSACTION_IN_PROGRESS"
    retriable = True

    def __init__(self, producer_id: int, state: str) -> None:
        super().__init__(
            f"the last transaction of producer {producer_id} is {state}: try again in a moment",
            producer_id=producer_id,
            state=state,
        )


class UnknownStaging(NotFound):
    code = "UNKNOWN_STAGING"

    def __init__(self, staging: str) -> None:
        super().__init__(
            "staging",
            f"{staging}: it expired, or was dropped when its sequence or a later one was committed, or never was",
        )
        self.fields.update(staging=staging)


class CommitNameTaken(Refused):
    code = "COMMIT_NAME_TAKEN"

    def __init__(self, name: str, *, writer: str, holder: str) -> None:
        super().__init__(
            f"writer {holder} commits under {name}, and {writer} may not: what it sends may be there already. "
            f"Use another name, or `penstock commits reset {name}` if the former writer is gone for good",
            name=name,
            writer=writer,
            holder=holder,
        )


class SequenceCommitted(Refused):
    code = "SEQUENCE_COMMITTED"

    def __init__(self, name: str, sequence: int, *, last: int) -> None:
        super().__init__(
            f"{name} is committed up to {last}, so nothing can be staged for {sequence}",
            name=name,
            sequence=sequence,
            last_sequence=last,
        )


class StagingMismatch(Refused):
    code = "STAGING_MISMATCH"

    def __init__(self, staging: str, why: str) -> None:
        super().__init__(
            f"staging {staging} {why}: nothing was committed", staging=staging, reason=why
        )


class CommitInProgress(Refused):
    code = "COMMIT_IN_PROGRESS"
    retriable = True

    def __init__(self, name: str, sequence: int) -> None:
        super().__init__(
            f"commit {sequence} of {name} is being applied: try again in a moment",
            name=name,
            sequence=sequence,
        )


class OverCommitQuota(Refused):
    code = "COMMIT_QUOTA"

    def __init__(self, what: str, *, limit: int) -> None:
        super().__init__(f"{what}: there may be {limit}", what=what, limit=limit)


class WrongOwner(Refused):
    code = "FAILED_PRECONDITION"

    def __init__(self, offset: int, *, owner: str) -> None:
        super().__init__(f"offset {offset} is held by {owner}", offset=offset, owner=owner)


class NotHeld(Refused):
    code = "FAILED_PRECONDITION"

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"offset {offset} {why}", offset=offset)


class InvalidSettings(Refused):
    code = "INVALID_CONFIG"

    def __init__(self, problems: Sequence[str]) -> None:
        lines = "".join(f"; {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{count}{lines}", problems=list(problems))
        self.problems = problems


class Unauthenticated(Refused):
    code = "UNAUTHENTICATED"


class Forbidden(Refused):
    code = "PERMISSION_DENIED"


class ForbiddenOrigin(Refused):
    code = "FORBIDDEN_ORIGIN"


class Cancelled(Refused):
    code = "CANCELLED"

    def __init__(self) -> None:
        super().__init__("the client cancelled the request while it waited")


class BadRequest(Refused):
    code = "MALFORMED_REQUEST"


class MethodNotAllowed(BadRequest):
    code = "METHOD_NOT_ALLOWED"

    def __init__(self, method: str, *, allow: Sequence[str]) -> None:
        super().__init__(f"{method[:20]} is not one of {', '.join(allow)}", allow=list(allow))
        self.allow = allow


class UnsupportedMediaType(BadRequest):
    code = "UNSUPPORTED_MEDIA_TYPE"


class TooSlow(BadRequest):
    code = "REQUEST_TIMEOUT"


class Unavailable(PenstockError):
    """The world is not ready; the same request may succeed later."""

    code = "UNAVAILABLE"
    retriable = True


class NoSpace(Unavailable):
    code = "NO_SPACE"

    def __init__(self, path: str) -> None:
        super().__init__(f"no space left to write {path}", path=path)


class BacklogFull(Unavailable):
    code = "RESOURCE_EXHAUSTED"

    def __init__(
        self, unit: str, *, found: int, adding: int, limit: int, retry_after_ms: int
    ) -> None:
        """`unit`: messages or bytes."""
        # Of a producer's batch. It waits for an empty partition, which may be for ever.
        only = "; so many at once are let in only when nothing is unread" if adding > limit else ""
        super().__init__(
            f"max_backlog_{unit} is {limit}: {found} {unit} unread, {adding} to be added{only}",
            reason=f"backlog_{unit}",
            found=found,
            adding=adding,
            limit=limit,
            retry_after_ms=retry_after_ms,
        )


class OverStagingQuota(Unavailable):
    code = "STAGING_QUOTA"

    def __init__(self, what: str, *, found: int, adding: int, limit: int) -> None:
        super().__init__(
            f"{limit} bytes may be staged {what}: {found} are, {adding} to be added",
            what=what,
            found=found,
            adding=adding,
            limit=limit,
        )


class PartitionFaulty(Unavailable):
    """Its files are damaged or missing. To try again is no use before an operator has seen to them."""

    code = "PARTITION_FAULTY"
    retriable = False

    def __init__(self, topic: str, partition: int, path: str, reason: str) -> None:
        said = f"partition {topic}/{partition} cannot be used: {path}: {reason}"
        super().__init__(said, topic=topic, partition=partition, path=path, reason=reason)


class PartlyPublished(Unavailable):
    """Some messages of a call were stored and others not. `results` has an answer or an error for each."""

    code = "PARTLY_PUBLISHED"
    # The same call once more would store some of them twice; those that failed may be sent again.
    retriable = False

    def __init__(self, results: Sequence[object]) -> None:
        errors = [one for one in results if isinstance(one, PenstockError)]
        # One reason for all of them, mostly.
        why = f": {errors[0]}" if errors else ""
        super().__init__(
            f"{len(errors)} of {len(results)} messages were not stored{why}",
            failed=len(errors),
            stored=len(results) - len(errors),
        )
        self.results = results


class TooManyRequests(Unavailable):
    code = "RESOURCE_EXHAUSTED"

    def __init__(self, reason: str, *, limit: int, retry_after_ms: int) -> None:
        super().__init__(
            f"{reason}: the limit is {limit}",
            reason=reason,
            limit=limit,
            retry_after_ms=retry_after_ms,
        )


class Draining(Unavailable):
    code = "NOT_READY"

    def __init__(self) -> None:
        super().__init__("the broker is stopping", retry_after_ms=1000)


class NotLeader(Unavailable):
    """Nothing was done. `leader` and `http` are where the leader answers, on the binary port and over HTTP."""

    code = "NOT_LEADER"

    def __init__(self, message: str, *, leader: str, http: str, epoch: int) -> None:
        super().__init__(message, leader=leader, http=http, epoch=epoch)


class LeaderUnknown(NotLeader):
    """Nothing was done, and this node does not know which one leads; a person may have to say so."""


class NotEnoughReplicas(Unavailable):
    """Nothing was done."""

    code = "NOT_ENOUGH_REPLICAS"

    def __init__(self, *, found: int, wanted: int) -> None:
        super().__init__(
            f"{found} of the {wanted} copies that cluster.min_isr asks for can be written: the standby is away",
            copies=found,
            min_isr=wanted,
            retry_after_ms=1000,
        )


class Unconfirmed(Unavailable):
    """It is on this machine, and the standby has not said that it has it, too. Repeat it with its producer's number or
    its idempotency key.
    """

    code = "UNCONFIRMED"
    retriable = False

    def __init__(self, reason: str) -> None:
        super().__init__(f"not confirmed by the standby: {reason}; it may be stored or not")


class Unreachable(Unavailable):
    """A client got no answer. `is_sent`: the request may have been carried out all the same."""

    code = "UNREACHABLE"
    came = "no answer"

    def __init__(self, address: str, reason: str, *, is_sent: bool = False) -> None:
        whether = "; the request may have been carried out" if is_sent else ""
        super().__init__(
            f"{self.came} from {address}: {reason}{whether}", address=address, reason=reason
        )
        self.is_sent = is_sent


class AnswerTimeout(Unreachable):
    code = "ANSWER_TIMEOUT"


class BadAnswer(Unreachable):
    """What came is none: another program may listen there."""

    code = "BAD_ANSWER"
    came = "not the answer of a broker"


class Damaged(PenstockError):
    """Stored bytes are not what was written."""

    code = "DAMAGED"


class DamagedBatch(Damaged):
    """A batch that once was whole. `offset` is the first offset that cannot be read, `next_offset` where reading can go
    on; None if unknown."""

    code = "DAMAGED_BATCH"

    def __init__(
        self,
        path: str,
        position: int,
        reason: str,
        *,
        next_offset: int | None,
        offset: int | None = None,
    ) -> None:
        super().__init__(
            f"damaged batch in {path} at byte {position}: {reason}",
            path=path,
            position=position,
            reason=reason,
            offset=offset,
            next_offset=next_offset,
        )
        self.path, self.position, self.reason = path, position, reason
        self.offset, self.next_offset = offset, next_offset


class DamagedFile(Damaged):
    code = "DAMAGED_FILE"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"damaged file {path}: {reason}", path=path, reason=reason)
        self.path, self.reason = path, reason


class HistoryLost(Damaged):
    """What a leader has of a log ends before what this node knows to be committed. Nothing was cut."""

    code = "HISTORY_LOST"

    def __init__(self, path: str, *, keep_to: int, committed: int) -> None:
        super().__init__(
            f"{path}: the leader's history has only the offsets below {keep_to}, and those below {committed} are known "
            "to be committed; one of the two nodes has lost something, or is an old copy",
            path=path,
            keep_to=keep_to,
            committed=committed,
        )


class Internal(PenstockError):
    """A bug of ours."""

    code = "INTERNAL"

    def __init__(self) -> None:
        super().__init__("the broker failed to carry out the request; its log says why")


class Fatal(PenstockError):
    """Nothing this process says about durability can be trusted any more: it must exit."""

    code = "FATAL"


class SyncFailed(Fatal):
    """An fsync failed. The kernel may have dropped the pages, so a retry that succeeds would lie."""

    code = "SYNC_FAILED"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"fsync of {path} failed: {reason}", path=path, reason=reason)


class DiskFailed(Fatal):
    code = "DISK_FAILED"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"disk failed on {path}: {reason}", path=path, reason=reason)
