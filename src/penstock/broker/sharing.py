"""Who gets how many when several members wait for the same messages."""

from collections.abc import Sequence


def shares(ready: int, wanted: Sequence[int]) -> list[int]:
    """Split what is ready as evenly as the wishes allow; what cannot be split goes to those in front.

    A shell that lets its line of waiting members go round by one after each hand-out is fair to all of them.
    """
    given = [0] * len(wanted)
    unserved = [index for index, wish in enumerate(wanted) if wish > 0]
    while unserved and ready >= len(unserved):
        each = ready // len(unserved)
        for index in unserved:
            part = min(wanted[index] - given[index], each)
            given[index] += part
            ready -= part
        unserved = [index for index in unserved if given[index] < wanted[index]]
    for index in unserved[:ready]:
        given[index] += 1
    return given
