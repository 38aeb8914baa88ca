"""The commands of members, for shared groups on the binary port: any member gets any message.

Who is there is kept by the server, for both ports, and not by the node: a shared group assigns nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ...api.answers import ReleaseMember
from ...api.command import Command
from ...api.consume import Poll
from ...api.groups import Mode, OpenGroup
from ...api.members import (
    DescribeMember,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    MemberCommand,
    PollMember,
    ReleasePartitions,
    Standing,
)
from ...api.principals import Principal
from ...broker.authorise import authorise_member
from ...broker.groups import check_group
from ...config import LimitsConfig
from ...errors import PenstockError, Refused, StaleGeneration
from ...model import check_name
from ...runtime.threads import ThreadDriver

# How every member of a shared group stands.
STANDING = Standing(0, "stable", (), (), 0)


class SharedMember(Protocol):
    """A member that joined. One with open polls is not missed."""

    group: str
    name: str
    client: str
    topics: Sequence[str]
    polls: int
    host: str
    generation: int
    owner: str

    def release(self, topic: str) -> ReleaseMember: ...


def standing_of(member: SharedMember) -> Standing:
    return Standing(member.generation, "stable", (), (), 0) if member.generation else STANDING


class Registry(Protocol):
    """All members of shared groups."""

    def join(
        self,
        group: str,
        name: str,
        client: str,
        topics: Sequence[str],
        session_s: float,
        *,
        by: Principal,
        limits: LimitsConfig,
        in_rounds: bool = False,
    ) -> SharedMember: ...
    def require_free(self, group: str, name: str) -> None: ...
    def get(self, group: str, name: str) -> SharedMember | None: ...
    def find(self, group: str, name: str) -> SharedMember | None:
        """A member; asking is a sign of life."""
        ...

    def leave(self, group: str, name: str) -> SharedMember: ...
    def watch(self, forget: Callable[[Sequence[SharedMember]], None]) -> None:
        """Have members told that were not heard of in time."""
        ...


class SharedGroups:
    """Answers commands of members for the principal that sends them."""

    def __init__(self, driver: ThreadDriver, registry: Registry) -> None:
        self._driver, self._registry = driver, registry

    def member_of(self, command: Command[Any], principal: Principal) -> SharedMember | None:
        """The member that a command names, if it is one of a shared group; a sign of its life.

        Forbidden: its topics are not the principal's. StaleGeneration: it is of a former member of this name.
        """
        if not isinstance(command, MemberCommand):
            return None
        known = self._registry.get(command.group, command.member)
        if known is None:
            return None
        authorise_member(principal, command.member, known.topics)
        if isinstance(command, JoinGroup):
            self._registry.require_free(command.group, command.member)
            return known
        asked = getattr(command, "generation", None)
        if known.generation and asked not in {None, known.generation}:
            raise StaleGeneration(command.group, asked=asked, current=known.generation)
        return self._registry.find(command.group, command.member)

    def join(self, command: JoinGroup, principal: Principal) -> list[str]:
        """The topics of a member that may join, whose group is open on all of them. Called in a thread.

        Refused; Forbidden; NotFound; ModeConflict: it is an assigned group.
        """
        if command.assignor is not None or command.is_auto_commit:
            raise Refused("an assignor and auto commit are for assigned groups", field="mode")
        group, topics = check_group(command.group), sorted(set(command.topic_names))
        driver = self._driver
        # Forbidden if it is the name of a member whose topics the principal does not reach.
        driver.execute(DescribeMember(group, command.member), principal)
        driver.execute(OpenGroup(group, tuple(topics), command.start), principal)
        name = check_name(command.member or "member", "member")
        for topic in topics:
            # A poll for nothing finds out if it is an assigned group.
            driver.execute(Poll(topic, group, name, 0, 1000), principal)
        former = self._registry.get(group, name)
        if former is not None and former.generation:
            # It was not heard of in time, and the server has not looked since.
            for topic in former.topics:
                with suppress(PenstockError):
                    driver.execute(former.release(topic))
        return topics

    def joined(self, command: JoinGroup, principal: Principal, topics: Sequence[str]) -> JoinReply:
        session_s = command.session_ms / 1000
        member = self._registry.join(
            *(command.group, command.member, command.client, topics, session_s),
            by=principal,
            limits=self._driver.node.limits,
            in_rounds=command.in_rounds,
        )
        member.host = command.host
        return JoinReply(member.name, standing_of(member), is_first=False)

    def answer(self, command: Command[Any], member: SharedMember) -> Any:
        """The reply to a command that does not poll. Refused: it is for members of assigned groups."""
        match command:
            case Heartbeat() | DescribeMember():
                return standing_of(member)
            case ReleasePartitions():
                return ()
            case LeaveGroup():
                self._registry.leave(member.group, member.name)
                for topic in member.topics:
                    with suppress(PenstockError):
                        self._driver.start(member.release(topic))
                return None
        raise Refused("that is for members of assigned groups")

    def polls(self, command: PollMember, member: SharedMember) -> list[Poll]:
        """What a member polls: each of its topics."""
        return [
            Poll(
                topic,
                member.group,
                member.name,
                command.limit,
                command.visibility_ms,
                command.priority,
                command.request_id,
                command.bytes_max,
                host=member.host,
            )
            for topic in member.topics
        ]

    def end_poll(self, member: SharedMember) -> None:
        """The poll of a member is over: its session lasts from now on."""
        member.polls -= 1
        self._registry.find(member.group, member.name)


def is_shared_join(command: Command[Any]) -> bool:
    return isinstance(command, JoinGroup) and command.mode is Mode.SHARED
