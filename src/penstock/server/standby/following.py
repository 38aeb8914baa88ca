"""The follower's side: stores what the leader sends, syncs, and says how far it is durable."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from ...errors import PenstockError, Unreachable
from ...model import Buffer
from ...replication.frames import Durable, HandOver, Level, encode_frame
from ...replication.replica import Replica
from ...runtime import RealDisk
from .link import Link, PeerFrame
from .membership import Membership, Peer

_SILENCE_TIMES = 2


class Following:
    """The logs of this data directory while another node leads. `storage` is the one thread that touches them."""

    def __init__(
        self,
        disk: RealDisk,
        membership: Membership,
        storage: ThreadPoolExecutor,
        logger: logging.Logger,
    ) -> None:
        self._disk, self._membership, self._logger = disk, membership, logger
        self._storage = storage
        self._replica: Replica | None = None
        self._received: list[tuple[PeerFrame, memoryview]] = []
        self._has_more = asyncio.Event()
        self._durable = self._announced = self._behind_bytes = 0
        self._heard_wall_ns = 0
        self._is_started = False
