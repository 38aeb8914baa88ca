"""Penstock: a durable message log and a work queue in one.

Importing the package loads nothing but this file; each name is found when it is first used.
"""


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("penstock")
