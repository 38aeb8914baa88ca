"""What a node keeps about its cluster over restarts: `cluster.json` in the data directory, replaced as a whole."""

from pathlib import Path
from secrets import token_hex

import msgspec

from ...errors import DamagedFile
from ...runtime.small_files import replace_file

FILE = "cluster.json"


class ClusterFacts(msgspec.Struct, frozen=True):
    """`epoch` is the highest that this node has led in or promised to follow; `led`: it led in that one.

    `is_level`: since it began to follow `epoch`, it had once everything that the leader had. `copies` is the leader's
    cluster.min_isr as it was heard last, `heard_ns` when that was, in wall time.

    `forced_epoch` is the last epoch that was begun by force in the history that this node led in or follows; 0: none
    was.

    `is_alone`: it leads, and acknowledges without the others until enough of them have everything, as a person said.

    `heard_epoch` is set after a promise to a node that has not led since: `is_level` and `copies` are about the leader
    of that epoch then.
    """

    cluster_id: str
    epoch: int = 0
    led: bool = False
    is_level: bool = False
    copies: int = 0
    heard_ns: int = 0
    heard_epoch: int = 0
    forced_epoch: int = 0
    is_alone: bool = False

    @property
    def leader_epoch(self) -> int:
        """That of the last leader this node copied, or was."""
        return self.heard_epoch or self.epoch

    def promised(self, epoch: int) -> "ClusterFacts":
        """Those of a node that follows nothing before `epoch`, in which no node is known to lead yet."""
        return msgspec.structs.replace(
            self,
            epoch=epoch,
            led=False,
            is_level=self.led or self.is_level,
            heard_epoch=self.leader_epoch,
        )

    def granted(self, epoch: int, copies: int, *, led_epoch: int) -> "ClusterFacts":
        """Those of a node that lets another lead on, which led last in `led_epoch`.

        It still has all that was acknowledged if the other led on from where both were, and never went alone.
        """
        is_level = self.is_level and self.copies > 1 and led_epoch == self.epoch
        return msgspec.structs.replace(
            self, epoch=epoch, led=False, copies=copies, is_level=is_level, heard_epoch=0
        )

    def alone(self) -> "ClusterFacts":
        """Those of a leader that acknowledges without the others from now on."""
        return msgspec.structs.replace(self, is_alone=True, copies=1, forced_epoch=self.epoch)

    def together(self, copies: int) -> "ClusterFacts":
        """Those of a leader that waits again for so many nodes in all."""
        return msgspec.structs.replace(self, is_alone=False, copies=copies)

    def following(
        self, cluster_id: str, epoch: int, copies: int, heard_ns: int, forced_epoch: int = 0
    ) -> "ClusterFacts":
        """Those of a node that copies a leader from now on. The cluster of its first one is its own for ever."""
        is_new = epoch > self.leader_epoch or self.led
        return msgspec.structs.replace(
            self,
            cluster_id=self.cluster_id or cluster_id,
            epoch=epoch if is_new else self.epoch,
            led=self.led and not is_new,
            is_alone=self.is_alone and not is_new,
            is_level=self.is_level and not is_new,
            copies=copies,
            heard_ns=heard_ns,
            heard_epoch=0 if is_new else self.heard_epoch,
            forced_epoch=forced_epoch,
        )


def new_cluster_id() -> str:
    return token_hex(11)


def read_facts(data: Path) -> ClusterFacts | None:
    """None: this data directory was never part of a cluster. DamagedFile."""
    path = data / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(content, type=ClusterFacts)
    except msgspec.DecodeError as error:
        raise DamagedFile(str(path), str(error)) from None


def write_facts(data: Path, facts: ClusterFacts) -> None:
    """Durable on return."""
    data.mkdir(parents=True, exist_ok=True)
    replace_file(data / FILE, msgspec.json.encode(facts))
