"""For how long a follower has been behind: the age of the oldest append that it has not confirmed."""

from collections import deque

# Appends that come closer to each other than this are remembered as one.
_STEP_S = 0.01
# And so are those that are closer than this part of the lag: a follower that is hours behind costs little memory.
_PART_MAX = 64


class Lag:
    """Remembers when appends came. What it says is never too low, and too high by 10 ms or a 64th at most."""

    def __init__(self) -> None:
        # The last sequence of some appends, and when the first of them came.
        self._marks: deque[tuple[int, float]] = deque()
        self._confirmed = 0

    def appended(self, sequence: int, now_s: float) -> None:
        marks = self._marks
        if sequence <= (marks[-1][0] if marks else self._confirmed):
            return
        if marks and now_s - marks[-1][1] < max(_STEP_S, (now_s - marks[0][1]) / _PART_MAX):
            marks[-1] = (sequence, marks[-1][1])
        else:
            marks.append((sequence, now_s))

    def confirmed(self, sequence: int) -> None:
        self._confirmed = max(self._confirmed, sequence)
        while self._marks and self._marks[0][0] <= sequence:
            self._marks.popleft()

    def seconds(self, now_s: float) -> float:
        """0: everything that was appended is confirmed."""
        return max(0.0, now_s - self._marks[0][1]) if self._marks else 0.0
