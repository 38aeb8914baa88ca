"""Keys of producers and of writers, and later keys that have their names: what the first made is not the second's."""

from typing import Any

from ..api.command import Command
from ..api.commits import OpenStaging
from ..api.principals import Principal, Role
from ..api.transactions import InitProducer
from ..errors import Forbidden, Unavailable
from .driver import SimDriver
from .violation import Checker, Violation


def key_of(name: str) -> Principal:
    """The key that a producer, or a writer of commits, of this name has."""
    return Principal(name, Role.PRODUCER, key_id=f"pk-{name}")


def try_as_outsider(driver: SimDriver, command: InitProducer | OpenStaging) -> None:
    """Ask for what a name has with another key of that name, if the node knows the name.

    Violation: the node does it.
    """
    node, name = driver.node, command.name
    if isinstance(command, InitProducer):
        homes = node.transactions.coordinators()
        is_known = any(name in home.machine.coordinator.by_name for home in homes)
    else:
        is_known = node.commits.is_known(name)
    if not is_known:
        return
    outsider = Principal(name, Role.PRODUCER, key_id=f"pk-another-{name}")
    asked: Command[Any] = command
    try:
        driver.execute(asked, outsider)
    except (Forbidden, Unavailable):
        return
    story = f"a key that was made later has the name {name}, and may do what its first key does"
    raise Violation(Checker.OWNER, story)
