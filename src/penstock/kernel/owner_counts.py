"""How much of a kind each key has. A machine counts while it applies its records, so a restart counts it again."""


class OwnerCounts:
    """Amounts by owner, which is the id of a key or empty, and their sum. Every question is one look in memory."""

    __slots__ = ("_by_owner", "total")

    def __init__(self) -> None:
        self._by_owner: dict[str, int] = {}
        self.total = 0

    def add(self, owner: str, amount: int = 1) -> None:
        self._by_owner[owner] = self._by_owner.get(owner, 0) + amount
        self.total += amount

    def remove(self, owner: str, amount: int = 1) -> None:
        """Take away what was added before. An owner of nothing is not kept."""
        left = self._by_owner[owner] - amount
        assert left >= 0, f"{owner} has {left + amount}, and not {amount}"
        self.total -= amount
        if left:
            self._by_owner[owner] = left
        else:
            del self._by_owner[owner]

    def of(self, owner: str) -> int:
        return self._by_owner.get(owner, 0)
