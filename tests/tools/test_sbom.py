"""The bill of materials has every package of the lock with its hashes, and which needs which."""

import json

import pytest

import sbom

LOCK = """
click==8.5.1 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
    # via penstock (pyproject.toml)
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:{a}
    # via
    #   -c requirements.lock
    #   penstock (pyproject.toml)
    #   pandas
numpy==2.5.4 ; python_full_version >= '3.12' \\
    --hash=sha256:{b}
    # via
    #   penstock (pyproject.toml)
    #   pandas
pandas==3 \\
    --hash=sha256:{b}
    # via penstock (pyproject.toml)
""".format(a="a" * 64, b="b" * 64)
PROJECT = {"name": "penstock", "version": "1.2", "license": "Apache-2.0"}


def test_packages_have_versions_markers_and_hashes():
    found = sbom.bill(PROJECT, sbom.packages(LOCK))["components"]
    assert [one["purl"] for one in found] == [
        "pkg:pypi/click@8.5.1",
        "pkg:pypi/numpy@2.4.6",
        "pkg:pypi/numpy@2.5.4",
        "pkg:pypi/pandas@3",
    ]
    assert [one["content"][0] for one in found[0]["hashes"]] == ["a", "b"]
    assert found[1]["properties"][0]["value"] == "python_full_version < '3.12'"
    assert "properties" not in found[0]


def test_what_needs_what_follows_from_the_lock():
    needs = sbom.bill(PROJECT, sbom.packages(LOCK))["dependencies"]
    by_reference = {one["ref"]: one["dependsOn"] for one in needs}
    both = ["pkg:pypi/numpy@2.4.6", "pkg:pypi/numpy@2.5.4"]
    assert by_reference["pkg:pypi/pandas@3"] == both
    assert by_reference["pkg:pypi/penstock@1.2"] == [
        "pkg:pypi/click@8.5.1",
        *both,
        "pkg:pypi/pandas@3",
    ]
    assert by_reference["pkg:pypi/click@8.5.1"] == []


def test_a_line_that_is_not_understood_is_refused():
    with pytest.raises(ValueError, match=r"-e \./somewhere"):
        sbom.packages(LOCK + "-e ./somewhere\n")


@pytest.mark.parametrize("name", ["requirements-small.lock", "requirements.lock"])
def test_our_own_locks_are_told_whole_and_alike(name: str, capsys: pytest.CaptureFixture[str]):
    lock = sbom.ROOT / name
    assert sbom.main([str(lock)]) == 0
    first = capsys.readouterr().out
    assert sbom.main([str(lock)]) == 0
    assert capsys.readouterr().out == first
    document = json.loads(first)
    pinned = [line for line in lock.read_text().splitlines() if "==" in line.split(";")[0]]
    assert len(document["components"]) == len(pinned)
    assert all(one["hashes"] for one in document["components"])
    references = [one["bom-ref"] for one in document["components"]]
    assert len(set(references)) == len(references)
    known = {*references, document["metadata"]["component"]["bom-ref"]}
    assert all(ref in known for one in document["dependencies"] for ref in one["dependsOn"])
