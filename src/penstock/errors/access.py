"""Who may not do it: keys and origins."""

from .families import Refused


class Unauthenticated(Refused):
    code = "UNAUTHENTICATED"


class Forbidden(Refused):
    code = "PERMISSION_DENIED"


class ForbiddenOrigin(Refused):
    code = "FORBIDDEN_ORIGIN"


class LastAdministrator(Refused):
    code = "LAST_ADMINISTRATOR"

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"{key_id} is the last key of an administrator: make another first, or force it; then "
            "`penstock keys create --role admin --data-dir DIR` makes one, while no broker runs there, or the next "
            "start if no key is left",
            key_id=key_id,
        )
