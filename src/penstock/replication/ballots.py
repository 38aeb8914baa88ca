"""Epochs of replicated logs are ballots: `round << 8 | node number`. Two nodes never begin the same one."""

from ..errors import InvalidConfig
from ..model import Epoch

NODE_MAX = (1 << 8) - 1
# Heads of batches keep an epoch as u32, and clients of Kafka as a signed one.
EPOCH_MAX = (1 << 31) - 1


def next_ballot(highest: int, node: int) -> Epoch:
    """Returns the epoch that a node begins when `highest` is the highest that it has seen or promised to."""
    if not 1 <= node <= NODE_MAX:
        raise InvalidConfig("node", node, f"a number in 1..{NODE_MAX}")
    ballot = (highest >> 8) + 1 << 8 | node
    assert ballot <= EPOCH_MAX, "a promotion a second would take three months to use them up"
    return Epoch(ballot)


def node_of(epoch: int) -> int:
    """The number of the node that began an epoch; 0: it is one of a node that led alone."""
    return epoch & NODE_MAX
