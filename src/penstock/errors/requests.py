"""Requests that cannot be read, ask for what is not there, or go over a limit."""

from collections.abc import Sequence

from .families import Refused


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


class TooLarge(Refused):
    code = "TOO_LARGE"

    def __init__(self, what: str, *, found: int, limit: int, advice: str = "") -> None:
        more = f": {advice}" if advice else ""
        text = f"{what} is {found}, the limit is {limit}{more}"
        super().__init__(text, what=what, found=found, limit=limit)


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


class AlreadyExists(Refused):
    code = "ALREADY_EXISTS"

    def __init__(self, kind: str, name: object) -> None:
        super().__init__(f"{kind} {name} exists already", kind=kind, name=name)


class NotPending(Refused):
    code = "NOT_PENDING"

    def __init__(self, identity: int, state: str) -> None:
        super().__init__(
            f"delayed message {identity} is not pending any more: {state}", id=identity, state=state
        )


class InvalidSettings(Refused):
    code = "INVALID_CONFIG"

    def __init__(self, problems: Sequence[str]) -> None:
        lines = "".join(f"; {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{count}{lines}", problems=list(problems))
        self.problems = problems


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
