"""A work queue with retries: three workers, jobs that sometimes fail, none lost and none done twice.

python examples/work_queue.py
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import penstock

JOBS = 50
# Short, so that the example is over soon; the default is one second, doubled after each failure.
BACKOFF_MS = 20


def resize(picture: str, attempt: int) -> None:
    """The work. Every fifth picture needs a second attempt, every tenth a third."""
    number = int(picture.removeprefix("cat-").removesuffix(".jpg"))
    if (number % 5 == 0 and attempt == 1) or (number % 10 == 0 and attempt == 2):
        raise TimeoutError(f"no answer for {picture}")


def work(queue: penstock.Queue) -> list[str]:
    done = []
    for message in queue.stream(timeout=1):
        picture = message.value.decode()
        try:
            resize(picture, message.attempts)
        except TimeoutError as error:
            queue.nack(message, str(error))
        else:
            queue.ack(message)
            done.append(picture)
    return done


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        options = {"auto_ack": False, "backoff_base_ms": BACKOFF_MS, "max_retries": 3}
        with penstock.open(directory, **options) as queue:
            queue.put_many([f"cat-{number}.jpg" for number in range(JOBS)])
            with ThreadPoolExecutor(3) as workers:
                done = [picture for one in workers.map(work, [queue] * 3) for picture in one]
            left = queue.stats().waiting
    sys.stdout.write(f"{len(done)} done, {len(set(done))} different, {left} left\n")


if __name__ == "__main__":
    main()
