"""What `penstock log repair` does with one log, and what it says meanwhile."""

import click

from ..config import LogConfig
from ..log.doctor.repair import changes_of, repairing
from ..log.doctor.repair_plan import Plan, planning
from ..log.doctor.verify import Problem, Severity, verifying
from ..model import LogId
from ..ports import Disk
from .log_places import Place
from .log_show import ignore, run_steps, say_change, say_problem, say_report


def repair_one(
    disk: Disk, place: Place, log_id: LogId | None, *, is_dry: bool, is_json: bool
) -> bool:
    """Plan, say what it comes to, do it, and check what came of it. True if the log is good."""
    plan = run_steps(planning(disk, place.directory, log_id=log_id), place, ignore)
    for change in changes_of(plan):
        say_change(change, place, is_json=is_json)
    for obstacle in plan.obstacles:
        say_problem(obstacle, place, is_json=is_json)
    if plan.obstacles:
        click.echo(f"{place.shown}: not for us to touch, so nothing was changed", err=True)
        return False
    if is_dry:
        return not plan.is_needed
    carry_out(plan, place)

    def tell(problem: Problem) -> None:
        if problem.severity is not Severity.NOTE:
            say_problem(problem, place, is_json=is_json)

    report = run_steps(verifying(disk, place.directory), place, tell)
    say_report(report, place, is_json=is_json)
    return report.is_good


def carry_out(plan: Plan, place: Place) -> None:
    try:
        run_steps(repairing(plan, LogConfig()), place, ignore)
    except KeyboardInterrupt:
        click.echo(f"{place.shown}: interrupted; run the repair again to finish it", err=True)
        raise
