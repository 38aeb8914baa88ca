"""Keys and values between bytes and a terminal."""

import click


def text_of(content: bytes | None) -> str | dict[str, str] | None:
    """Text if it is UTF-8, otherwise base64 that says so."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(content).decode()}


def printed(content: bytes | None) -> str:
    """One line whatever is inside."""
    if content is None:
        return "(null)"
    text = content.decode(errors="backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def pairs(headers: tuple[str, ...]) -> list[tuple[str, str]]:
    """Headers as they are written on a command line."""
    for header in headers:
        if "=" not in header:
            raise click.UsageError(f"--header: {header!r} is not NAME=VALUE")
    return [(name, value) for name, _, value in (header.partition("=") for header in headers)]
