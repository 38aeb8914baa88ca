"""Who may not do it: keys and origins."""

from .families import Refused


class Unauthenticated(Refused):
    code = "UNAUTHENTICATED"


class Forbidden(Refused):
    code = "PERMISSION_DENIED"


class ForbiddenOrigin(Refused):
    code = "FORBIDDEN_ORIGIN"
