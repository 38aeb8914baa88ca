"""Which fetch sessions are kept, and which make room for others."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.runtime.waits import PartitionEnd
from penstock.server.kafka.fetch_sessions import NO_SESSION, FetchSession, FetchSessions


def request(epoch: int, count: int, session: int = NO_SESSION) -> dict[str, Any]:
    wanted = {"current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1}
    numbered = [{**wanted, "partition": number} for number in range(count)]
    return {
        "session_id": session,
        "session_epoch": epoch,
        "topics": [{"topic": "a", "partitions": numbered}],
        "forgotten_topics_data": [],
    }


class StillDriver:
    """Time goes on as a test says, and nothing ever grows."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.loop = SimpleNamespace(time=lambda: self.now_s)
        self.subscribed = 0

    def subscribe(self, *_: object) -> None:
        self.subscribed += 1

    def unsubscribe(self, *_: object) -> None:
        self.subscribed -= 1


class TestEviction:
    @pytest.fixture
    def driver(self) -> Any:
        return StillDriver()

    @pytest.fixture
    def begin(self, driver: Any) -> Callable[[FetchSessions, int], FetchSession]:
        def begin(sessions: FetchSessions, count: int) -> FetchSession:
            session = sessions.begin(None, driver, request(0, count))
            assert isinstance(session, FetchSession)
            for key in session.positions:
                session.watch(key, 0)
            sessions.end(session)
            return session

        return begin

    def test_one_that_was_not_used_for_long_goes_first(self, driver: Any, begin: Any) -> None:
        sessions = FetchSessions(sessions_max=2)
        old, used = begin(sessions, 9), begin(sessions, 9)
        driver.now_s = 100.0
        refused = begin(sessions, 9)
        assert (refused.id, refused.is_kept, len(sessions)) == (NO_SESSION, False, 2)
        driver.now_s = 121.0
        driver.driver = SimpleNamespace(lock=_NoLock())
        assert sessions.begin(used, driver, request(used.epoch, 0, used.id)) is used
        new = begin(sessions, 1)
        assert [one.is_kept for one in (old, used, new)] == [False, True, True]
        # Nothing is watched for one that is gone.
        assert driver.subscribed == 9 + 1

    def test_one_that_is_small_goes_for_a_larger_one(self, driver: Any, begin: Any) -> None:
        sessions = FetchSessions(sessions_max=2)
        small, large = begin(sessions, 2), begin(sessions, 5)
        driver.now_s = 119.0
        for session in (small, large):
            session.used_at = driver.now_s
        assert not begin(sessions, 9).is_kept
        driver.now_s = 121.0
        assert not begin(sessions, 1).is_kept
        assert begin(sessions, 3).is_kept
        assert [one.is_kept for one in (small, large)] == [False, True]

    def test_partitions_are_bounded_for_each_and_in_all(self, begin: Any) -> None:
        sessions = FetchSessions(partitions_max=5, partitions_max_all=12)
        assert not begin(sessions, 6).is_kept
        first, second = begin(sessions, 5), begin(sessions, 5)
        assert not begin(sessions, 3).is_kept
        assert begin(sessions, 2).is_kept
        assert sessions.partitions == 12
        sessions.forget(first)
        assert sessions.partitions == 7
        assert begin(sessions, 5).is_kept
        assert second.is_kept

    def test_one_that_grows_too_large_is_over(self, driver: Any, begin: Any) -> None:
        sessions = FetchSessions(partitions_max=5)
        session = begin(sessions, 5)
        driver.driver = SimpleNamespace(lock=_NoLock())
        sessions.begin(session, driver, request(session.epoch, 6, session.id))
        assert (session.id, session.is_kept, len(sessions)) == (NO_SESSION, False, 0)
        sessions.end(session)
        assert driver.subscribed == 0

    def test_one_that_is_evicted_while_it_waits_ends_with_its_answer(
        self, driver: Any, begin: Any
    ) -> None:
        sessions = FetchSessions(sessions_max=1)
        session = sessions.begin(None, driver, request(0, 2))
        assert isinstance(session, FetchSession)
        session.watch(PartitionEnd("a", 0), 0)
        driver.now_s = 500.0
        begin(sessions, 1)
        assert (session.is_kept, len(session.positions)) == (False, 2)
        sessions.end(session)
        assert (len(session.positions), driver.subscribed) == (0, 1)


class _NoLock:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
