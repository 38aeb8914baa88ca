"""A broker and two standbys, as three processes: of two that are left the longer one leads, and one alone does not."""

import pytest

from .pairs import TOPIC, three


@pytest.mark.tier("test")
def test_of_two_standbys_the_longer_one_leads_and_none_alone(tmp_path):
    with three(tmp_path) as (first, second, third):
        assert first.call("POST", "/topics", TOPIC).status == 201
        stored = first.publish("a").json["results"][0]
        assert (stored["guarantee"], stored["copies"]) == ("replicated", 3)
        assert [one["node"] for one in first.call("GET", "/cluster").json["standbys"]] == [2, 3]

        # Two of three are enough to acknowledge, and the third lacks it.
        third.kill()
        first.until_in_sync(2)
        assert first.publish("b").json["results"][0]["copies"] == 2
        second.kill()
        first.kill()
        third.start()
        refused = third.command("promote")
        assert refused.returncode == 3
        assert "1 of 3 nodes can be asked" in refused.stderr
        assert third.role() == "waiting"

        second.start()
        promoted = third.command("promote")
        assert promoted.returncode == 0, promoted.stderr
        assert "node 2 has more than this one" in promoted.stdout
        second.until_role("leading")
        second.until_in_sync(2)
        assert second.values() == ["a", "b"]
        assert second.publish("c").status == 200
        first.start()
        second.until_in_sync(3)

        # A planned switch-over goes to the node on which it is asked for, and the other follows that one.
        third.promote()
        third.until_in_sync(3)
        assert third.values() == ["a", "b", "c"]
