"""Groups, their members and their leases."""

from .families import Refused
from .requests import NotFound


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


class WrongOwner(Refused):
    code = "FAILED_PRECONDITION"

    def __init__(self, offset: int, *, owner: str) -> None:
        super().__init__(f"offset {offset} is held by {owner}", offset=offset, owner=owner)


class NotHeld(Refused):
    code = "FAILED_PRECONDITION"

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"offset {offset} {why}", offset=offset)
