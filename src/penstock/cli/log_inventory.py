"""What `penstock log verify` says of a data directory as a whole."""

from pathlib import Path
from typing import TYPE_CHECKING

from .log_places import Place
from .log_show import say, say_name

if TYPE_CHECKING:
    from ..broker.inventory import Inventory


def check_inventory(directory: Path, *, is_json: bool) -> bool:
    """Say what is missing in a data directory and what does not belong there; whether all is well."""
    from ..log.doctor.verify import Severity
    from ..runtime.lock import holder_of
    from .log_words import problem_fields, problem_text

    found = _look(directory)
    if holder_of(directory) is not None and not found.is_good:
        # Topics come and go while a broker runs: only what two looks agree on is so.
        again = _look(directory)
        found.problems = [one for one in found.problems if one in again.problems]
    place = Place(directory, "", str(directory))
    say_name(place, is_json=is_json)
    for problem in found.problems:
        fields = {"type": "problem", **problem_fields(problem, f"{directory}/{problem.path}")}
        say(place, fields, problem_text(problem, problem.path), is_json=is_json)
    counts = {one.value: found.counts[one] for one in Severity}
    summary = {
        "type": "directory",
        "is_good": found.is_good,
        "topics": found.topics,
        "partitions": found.partitions,
        "problems": counts,
    }
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    text = "; ".join(
        [
            "  good" if found.is_good else "  NOT GOOD",
            f"meta knows {found.topics} topics with {found.partitions} partitions",
            words or "no problems",
        ]
    )
    say(place, summary, text, is_json=is_json)
    return found.is_good


def _look(directory: Path) -> "Inventory":
    from ..broker.inventory import take_inventory
    from ..runtime import RealDisk
    from ..sim import SimDisk

    with RealDisk.open_read_only(directory) as disk:
        return take_inventory(disk, SimDisk(is_forgetful=True))
