"""Runs seeds from a driver: `python -m penstock.sim 17`, or many: `python -m penstock.sim 0 --count 200`."""

import sys
from collections import Counter
from time import process_time

import click

from .violation import Violation
from .world import Result, run_seed


@click.command()
@click.argument("seed", type=int)
@click.option("--count", default=1, show_default=True, help="How many seeds, from SEED on.")
@click.option("--seconds", default=60, show_default=True, help="Virtual seconds of faults a seed.")
def main(seed: int, count: int, seconds: int) -> None:
    """Simulate a node from SEED. Prints each broken promise with its story; the exit status is 1 if there is one."""
    results, failed, began_s = list[Result](), 0, process_time()
    for number in range(seed, seed + count):
        try:
            results.append(run_seed(number, seconds))
        except Violation as violation:
            failed += 1
            click.echo(f"seed {number}: {violation}")
            if count == 1:
                click.echo("\n".join(violation.__notes__))
    click.echo(_summary(results, process_time() - began_s))
    sys.exit(failed > 0)


def _summary(results: list[Result], took_s: float) -> str:
    faults, aimed = sum(one.faults for one in results), sum(one.aimed for one in results)
    simulated_s = sum(one.seconds for one in results)
    lines = [
        f"{len(results)} seeds kept every promise, {simulated_s} s in {took_s:.1f} s of CPU",
        f"events {sum(one.events for one in results)}, faults {faults}, aimed {aimed}",
        f"restarts {sum(one.restarts for one in results)}",
        f"messages {sum(one.messages for one in results)}, records {sum(one.records for one in results)}",
        f"acked {sum(one.acked for one in results)}, repeats {sum(one.repeated for one in results)}",
        f"dead letters {sum(one.letters for one in results)}",
    ]
    losses = sum((one.file_losses for one in results), Counter[str]())
    lines += [f"{outcome} {count}" for outcome, count in sorted(losses.items())]
    if len(results) == 1:
        lines.append(f"trace {results[0].trace}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
