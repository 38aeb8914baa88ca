"""An administrator: it makes, rotates and revokes keys, and checks them at every start."""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from ..api.keys import CreateKey, ListKeys, NewKey, RevokeKey, RotateKey
from ..api.principals import Role
from ..broker.node import Node
from ..errors import Unavailable
from .client import WorldView
from .driver import SimDriver
from .violation import Checker, Violation

_NAMES = ("app", "shop", "ops")
_ENDED_KEPT = 20


@dataclass(slots=True, eq=False)
class Administrator:
    """Knows which keys must work. `unsure` are the names of keys whose change a crash interrupted."""

    name: str
    world: WorldView
    # Its own, so that other clients act as they would without it.
    entropy: Random
    keys: dict[str, NewKey] = field(default_factory=dict)
    # Texts that never work again.
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=_ENDED_KEPT))
    unsure: set[str] = field(default_factory=set)

    def wake(self) -> None:
        self.world.wake_later(900, self)
        driver = self.world.driver
        if driver is not None:
            name = min(self.unsure, default="") or self.entropy.choice(_NAMES)
            event = self.world.new_event(f"{self.name} changes the key of {name}")
            self.world.act(event, lambda: self._change(driver, name))

    def _change(self, driver: SimDriver, name: str) -> None:
        was_unsure = name in self.unsure
        self.unsure.add(name)
        try:
            if was_unsure:
                self._clear(driver, name)
            elif name not in self.keys:
                self.keys[name] = driver.execute(CreateKey(name, Role.PRODUCER))
            elif self.entropy.random() < 0.6:
                rotated = driver.execute(RotateKey(self.keys[name].key.key_id, grace_ms=0))
                self._end(name)
                self.keys[name] = rotated
            else:
                driver.execute(RevokeKey(self.keys[name].key.key_id))
                self._end(name)
        except Unavailable as error:
            self.world.note(f"put off: {error.code}")
            if was_unsure:
                return
        self.unsure.discard(name)

    def _clear(self, driver: SimDriver, name: str) -> None:
        """Revoke a key whose text may be lost with the reply."""
        for key in driver.execute(ListKeys()):
            if key.name == name:
                driver.execute(RevokeKey(key.key_id))
        if name in self.keys:
            self._end(name)

    def _end(self, name: str) -> None:
        self.ended.append(self.keys.pop(name).text)

    def check(self, node: Node, now_ns: int, *, is_forgiven: bool) -> None:
        """Violation: a node that has just started does not know the keys as it acknowledged them."""
        if is_forgiven:
            # The disk has lied, so acknowledged keys may be lost.
            self.unsure.update(_NAMES)
            self.ended.clear()
        for name, new in self.keys.items():
            if name not in self.unsure and node.keys.find(new.text, now_ns) is None:
                raise Violation(Checker.KEYS, f"the key of {name} was made, and is not known")
        if any(node.keys.find(text, now_ns) is not None for text in self.ended):
            raise Violation(Checker.KEYS, "a secret that was rotated away or revoked works again")
        found = {one.name for one in node.keys.by_id.values()} - self.unsure
        if found - self.keys.keys():
            raise Violation(
                Checker.KEYS, f"{sorted(found)} have keys, and {sorted(self.keys)} should"
            )
