"""The state of a lake after an earlier commit: by its number, or by a time."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ...errors import NotFound, Refused
from .state import LakeState

if TYPE_CHECKING:
    from .lake import LakeReader

# As in the names of commits.
_DIGITS_MAX = 20


def moment_of(written: str) -> datetime:
    """Returns the moment of a time as it is written, in UTC if it does not say. Refused: it is no time."""
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        raise Refused(
            f"{written[:40]!r} is neither the number of a commit nor a time such as 2026-01-31T12:00:00Z"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def state_as_of(files: "LakeReader", written: str) -> LakeState:
    """Returns the state after a commit. NotFound: there is none. Refused: files of it were removed by vacuum."""
    state, now, is_over = LakeState(), LakeState(), False
    is_number = written.isascii() and written.isdigit() and len(written) <= _DIGITS_MAX
    until = int(written) if is_number else moment_of(written)
    for manifest, own in files.history():
        now.apply(manifest, own)
        if isinstance(until, int):
            is_over = manifest.commit > until
        else:
            # Clocks step: what follows a commit that is too late is too late as well.
            is_over = is_over or datetime.fromisoformat(manifest.made_at) > until
        if not is_over:
            state.apply(manifest, own)
    if state.commits == 0 or (isinstance(until, int) and until >= now.commits):
        raise NotFound("commit", f"{written} in {files.root}")
    for path in state.files.keys() - now.files.keys():
        if not files.store.has(files.place_of(state.files[path])):
            raise Refused(
                f"{files.root} as of {written} needs {path}, which vacuum has removed: "
                "ask for a later commit"
            )
    return state
