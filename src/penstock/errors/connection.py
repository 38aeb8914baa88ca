"""A client got no answer, or not the answer of a broker."""

from .families import Unavailable


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
