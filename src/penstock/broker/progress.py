"""How far a node is with the opening of its data, for those who ask meanwhile."""

import msgspec


class OpeningProgress(msgspec.Struct, eq=False):
    """Read by any thread while another one opens the node."""

    opened: int = 0
    partitions: int = 0
