"""Messages that have to stay for a while, because a reader of files reads them directly."""

# More than that share one pin: it keeps more than it had to, never less.
_PINS_MAX = 100


class Pins:
    """By first offset that has to stay, until when on the monotonic clock. A restart forgets them; readers then find
    the files gone and ask for what was in them."""

    def __init__(self) -> None:
        self._until_ns: dict[int, int] = {}

    def hold(self, from_offset: int, until_ns: int) -> None:
        """Keep everything from an offset on."""
        self._until_ns[from_offset] = max(until_ns, self._until_ns.get(from_offset, 0))
        if len(self._until_ns) > _PINS_MAX:
            self._until_ns = {min(self._until_ns): max(self._until_ns.values())}

    def lowest(self, now_ns: int) -> int | None:
        """The first offset that has to stay; None if nothing has to."""
        self._until_ns = {one: until for one, until in self._until_ns.items() if until > now_ns}
        return min(self._until_ns, default=None)
