"""How rows that fail alone are found: in how many jobs, and that all others are run once."""

from collections import Counter
from random import Random

import pytest

from penstock.spark.work_parts import RowsFailed, run_in_parts


class Jobs:
    """Jobs over rows of which some are poison. `tasks` read equal shares; with `is_blind` no task is named."""

    def __init__(self, poison, *, tasks=16, is_blind=False, is_shuffled=False):
        self.poison, self.tasks = set(poison), tasks
        self.is_blind, self.is_shuffled = is_blind, is_shuffled
        self.count, self.done, self.alone = 0, Counter(), []

    def run(self, rows):
        self.count += 1
        wrong = [place for place, row in enumerate(rows) if row in self.poison]
        if not wrong:
            self.done.update(rows)
            return
        task = wrong[0] // -(-len(rows) // self.tasks)
        if self.is_shuffled:
            task = (task + 1) % self.tasks
        raise RowsFailed("it is poison", None if self.is_blind else task, self.tasks)

    def all_of(self, count):
        run_in_parts(range(count), self.run, lambda row, _failure: self.alone.append(row))
        return self


@pytest.mark.parametrize("poison", [0, 24_999, 25_000, 49_999])
def test_one_of_50000_rows_is_found_in_few_jobs(poison):
    jobs = Jobs([poison]).all_of(50_000)
    assert jobs.alone == [poison]
    assert jobs.count <= 6
    assert jobs.done.total() == 49_999
    assert max(jobs.done.values()) == 1


def test_three_of_50000_rows_are_found_in_few_jobs():
    jobs = Jobs([3, 4, 40_000]).all_of(50_000)
    assert sorted(jobs.alone) == [3, 4, 40_000]
    assert jobs.count <= 16


@pytest.mark.parametrize("seed", range(40))
def test_all_poison_is_found_and_all_other_rows_are_run_once(seed):
    random = Random(seed)
    count = random.choice([1, 2, 3, 17, 400])
    poison = random.sample(range(count), random.randint(0, min(5, count)))
    flags = {"is_blind": seed % 3 == 1, "is_shuffled": seed % 3 == 2}
    jobs = Jobs(poison, tasks=random.choice([1, 2, 16]), **flags).all_of(count)
    assert sorted(jobs.alone) == sorted(poison)
    assert jobs.done == Counter(set(range(count)) - set(poison))


def test_a_failure_that_does_not_come_again_costs_no_row():
    failures = iter([RowsFailed("once", 3, 16), None, None])

    def run(rows):
        failure = next(failures)
        if failure is not None:
            raise failure
        done.update(rows)

    done = Counter()
    run_in_parts(range(100), run, lambda *_: pytest.fail("none of them is poison"))
    assert done == Counter(range(100))
