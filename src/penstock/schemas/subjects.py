"""Names of subjects."""

from ..config import SUBJECT_CHARACTERS_MAX
from ..errors import InvalidSubject


def check_subject(subject: str) -> None:
    """InvalidSubject for a name that no subject may have."""
    if not 0 < len(subject) <= SUBJECT_CHARACTERS_MAX or not subject.isprintable():
        raise InvalidSubject(subject, f"1 to {SUBJECT_CHARACTERS_MAX} printable characters")
    if names_context(subject):
        raise InvalidSubject(subject, "there are no contexts but the one without a name")


def names_context(subject: str) -> bool:
    """Whether Confluent's registry would read the beginning of a name as a context (`:.context:subject`)."""
    return subject.startswith((":.", ":*:"))
