"""`penstock log` as a script and as a person see it: words in, text and an exit code out."""

import json
import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from penstock import Broker
from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.codec import Columns, Compression, encode
from penstock.config import LogConfig, StorageConfig
from penstock.log import open_log
from penstock.model import LogId
from penstock.runtime import RealDisk

from ..log.damaged import as_nobody

NOW_NS = 1_700_000_000_000_000_000
CONFIG = LogConfig(segment_size_bytes=600, index_interval_bytes=150)
LOG = "logs/orders.1/partition-0/messages"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that holds one log of 40 messages in several segments, and is not the whole of a broker."""
    directory = tmp_path / "data"
    write_log(directory, LOG, 77)
    return directory


def write_log(directory: Path, log: str, log_id: int) -> None:
    with RealDisk(directory, StorageConfig()) as disk:
        opened, _ = open_log(disk, log, log_id=LogId(log_id), config=CONFIG)
        for number in range(20):
            values = [b"value %d" % (number * 2), b"\xff\x00" if number == 3 else b"odd"]
            columns = Columns(
                values=values,
                keys=[b"key", None],
                headers=[[("trace", b"\x01")], []],
                timestamps=NOW_NS + number,
            )
            encoded = encode(columns, compression=Compression.LZ4)
            opened.append(encoded, now_ns=NOW_NS + number)
        opened.close()


def penstock(*words: object) -> int:
    return run(root, ["log", *map(str, words)])


def lines_of(capsys) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def segments(data: Path) -> list[Path]:
    return sorted((data / LOG).glob("*.log"))


def flip(file: Path, byte: int) -> None:
    content = bytearray(file.read_bytes())
    content[byte] ^= 1
    file.write_bytes(content)


def test_a_good_log_is_said_to_be_good(data, capsys) -> None:
    assert penstock("verify", data) == Exit.OK
    name, verdict = capsys.readouterr().out.splitlines()
    assert name == str(data / LOG)
    assert verdict.startswith("  good; offsets 0 to 39, 40 messages in 20 batches;")


def test_damage_is_told_with_file_place_and_offsets(data, capsys) -> None:
    flip(segments(data)[1], 300)
    assert penstock("verify", data) == Exit.FOUND_PROBLEMS
    _, problem, verdict = capsys.readouterr().out.splitlines()
    assert problem.startswith(f"  damage  {segments(data)[1].name} at byte ")
    assert "; offsets " in problem
    assert verdict.startswith("  NOT GOOD; ")


def test_json_problems_are_one_object_a_line_and_end_with_a_summary(data, capsys) -> None:
    flip(segments(data)[1], 300)
    assert penstock("verify", data, "--json") == Exit.FOUND_PROBLEMS
    problem, summary = lines_of(capsys)
    assert (problem["type"], problem["severity"], problem["kind"]) == ("problem", "damage", "batch")
    assert Path(problem["file"]) == segments(data)[1]
    assert problem["next_offset"] - problem["first_offset"] == summary["lost_offsets"] == 2
    assert summary["is_good"] is False
    assert summary["problems"] == {"note": 0, "torn": 0, "damage": 1}


def test_all_logs_below_a_directory_are_checked_and_the_worst_counts(data, capsys) -> None:
    write_log(data, "logs/orders.1/partition-1/messages", 78)
    write_log(data, "other", 79)
    flip(segments(data)[0], 300)
    assert penstock("verify", data, "--json") == Exit.FOUND_PROBLEMS
    verdicts = {line["log"]: line["is_good"] for line in lines_of(capsys) if "is_good" in line}
    assert list(verdicts.values()) == [False, True, True]
    assert penstock("verify", data / "other") == Exit.OK


def test_a_repair_says_what_it_did_and_leaves_a_good_log(data, capsys) -> None:
    flip(segments(data)[1], 300)
    assert penstock("repair", data, "--dry-run") == Exit.FOUND_PROBLEMS
    planned = capsys.readouterr().out.splitlines()
    assert penstock("verify", data) == Exit.FOUND_PROBLEMS
    capsys.readouterr()
    assert penstock("repair", data) == Exit.OK
    done = capsys.readouterr().out.splitlines()
    assert done[:-1] == planned
    assert done[-1].startswith("  good; ")
    assert [word for line in planned for word in line.split()[:1]][1:] == [
        "cut",
        "filled",
        "checkpointed",
    ]
    assert penstock("verify", data) == Exit.OK
    assert penstock("repair", data, "--dry-run") == Exit.OK


def test_json_of_a_repair_names_the_file_that_keeps_the_bytes(data, capsys) -> None:
    flip(segments(data)[1], 300)
    assert penstock("repair", data, "--json") == Exit.OK
    cut, *_, summary = lines_of(capsys)
    assert (cut["type"], cut["deed"]) == ("change", "cut")
    assert Path(cut["kept_as"]).stat().st_size == cut["size"]
    assert summary["is_good"] is True


def test_an_id_is_asked_for_where_the_identity_is_lost(data, capsys) -> None:
    (data / LOG / "identity").unlink()
    assert penstock("verify", data) == Exit.FOUND_PROBLEMS
    assert "whose log" in capsys.readouterr().out
    for command in ("dump", "stats"):
        assert penstock(command, data / LOG) == Exit.REFUSED
        assert "--log-id" in capsys.readouterr().err
    assert penstock("repair", data, "--log-id", "0xbad") == Exit.REFUSED
    assert penstock("repair", data, "--log-id", "0x4d") == Exit.OK
    assert penstock("verify", data) == Exit.OK


@pytest.mark.parametrize("text", ["seven", "-1", str(1 << 64), ""])
def test_an_id_that_is_no_number_is_a_usage_error(data, text, capsys) -> None:
    assert penstock("verify", data, "--log-id", text) == Exit.USAGE
    assert "64 bits" in capsys.readouterr().err


def test_a_link_is_not_for_a_repair_to_touch(data, tmp_path, capsys) -> None:
    segment = segments(data)[1]
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")
    assert penstock("repair", data) == Exit.FOUND_PROBLEMS
    assert "nothing was changed" in capsys.readouterr().err
    assert segment.is_symlink()
    assert not list((data / LOG).glob("*.cut-*"))


def test_a_repair_follows_no_link_out_of_the_directory(tmp_path, capsys) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for directory in (inside, outside):
        with Broker(directory) as broker:
            broker.create_topic("orders", partitions=1)
            broker.publish("orders", b"lamp")
    log = outside / "topics" / "default" / "orders.1" / "partition-0" / "messages" / f"{0:020d}.log"
    damaged = log.read_bytes()[:-1]
    log.write_bytes(damaged)
    (inside / "topics" / "default" / "linked.7").symlink_to(log.parent.parent.parent)
    for words in (["--dry-run"], []):
        assert run(root, ["log", "repair", str(inside), *words]) == Exit.REFUSED
        told = capsys.readouterr()
        assert f"a link leads out of {inside}, to {log.parent}" in told.err
        assert "orders.1" in told.out
    assert log.read_bytes() == damaged
    # Under its own name it may be repaired.
    assert run(root, ["log", "repair", str(outside)]) == Exit.OK
    assert log.read_bytes() != damaged


def test_a_directory_in_use_is_read_and_said_to_be_so_but_not_repaired(data, capsys) -> None:
    with RealDisk(data, StorageConfig()):
        for command in ("verify", "dump", "stats"):
            assert penstock(command, data / LOG) == Exit.OK
            assert f"in use by process {os.getpid()}" in capsys.readouterr().err
        assert penstock("repair", data) == Exit.REFUSED
        assert "ALREADY_OPEN" in capsys.readouterr().err
    assert penstock("verify", data) == Exit.OK
    assert capsys.readouterr().err == ""


def test_a_log_in_use_is_not_repaired_when_the_lock_file_was_removed(data, capsys) -> None:
    with RealDisk(data, StorageConfig()):
        (data / "lock").unlink()
        for place in (data, data / LOG):
            assert penstock("repair", place) == Exit.REFUSED
            assert "already open" in capsys.readouterr().err
            assert penstock("verify", place) == Exit.OK
            assert "is in use by" in capsys.readouterr().err


def test_it_is_said_once_however_many_logs_there_are(data, capsys) -> None:
    for number in (2, 3):
        write_log(data, f"logs/orders.{number}/partition-0/messages", number)
    with RealDisk(data, StorageConfig()):
        for words in (["verify"], ["stats"], ["repair", "--dry-run"]):
            assert penstock(*words, data) == Exit.OK
            assert capsys.readouterr().err.count("in use by") == 1
        assert penstock("repair", data) == Exit.REFUSED
        (said,) = capsys.readouterr().err.splitlines()
    assert "already open in this process: nothing was changed" in said
    assert "Stop it first; --dry-run says" in said


def test_an_unfinished_end_is_no_problem_while_somebody_writes(data, capsys) -> None:
    last = segments(data)[-1]
    last.write_bytes(last.read_bytes() + b"PNSB half a batch")
    with RealDisk(data, StorageConfig()):
        assert penstock("verify", data) == Exit.OK
    assert penstock("verify", data) == Exit.FOUND_PROBLEMS


def test_messages_are_shown_from_an_offset_on(data, capsys) -> None:
    assert penstock("dump", data, "--offset", 5, "--limit", 3) == Exit.OK
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["5", "6", "7"]
    assert shown[1] == (
        '         6  2023-11-14T22:13:20.000000003Z  epoch 1  key "key"  value "value 6"'
        '  "trace"="\\u0001"'
    )
    assert shown[2].endswith("value base64:/wA=")


def test_json_messages_survive_whatever_they_hold(data, capsys) -> None:
    assert penstock("dump", data, "--offset", 6, "--limit", 2, "--json") == Exit.OK
    text, raw = lines_of(capsys)
    assert (text["offset"], text["key"], text["value"]) == (6, "key", "value 6")
    assert text["headers"] == [["trace", "\x01"]]
    assert (raw["key"], raw["value"]) == (None, {"base64": "/wA="})


def test_all_messages_are_dumped_once_and_in_order(data, capsys) -> None:
    assert penstock("dump", data, "--json") == Exit.OK
    assert [line["offset"] for line in lines_of(capsys)] == list(range(40))


def test_heads_are_one_line_a_batch(data, capsys) -> None:
    assert penstock("dump", data, "--heads", "--json", "--offset", 11) == Exit.OK
    heads = lines_of(capsys)
    assert [head["base_offset"] for head in heads] == list(range(10, 40, 2))
    assert {(head["messages"], head["epoch"], head["origin"]) for head in heads} == {(2, 1, "none")}
    assert penstock("dump", data, "--heads", "--limit", 1) == Exit.OK
    assert "2 messages" in capsys.readouterr().out


def test_a_dump_goes_on_behind_what_cannot_be_read(data, capsys) -> None:
    flip(segments(data)[1], 300)
    assert penstock("dump", data, "--json") == Exit.FOUND_PROBLEMS
    lines = lines_of(capsys)
    (unreadable,) = [line for line in lines if "unreadable" in line]
    assert Path(unreadable["file"]) == segments(data)[1]
    assert len(lines) == 40 - 2 + 1
    assert penstock("dump", data) == Exit.FOUND_PROBLEMS
    assert "  unreadable  " in capsys.readouterr().out


def test_a_message_cannot_drive_the_terminal(tmp_path, capsys) -> None:
    with RealDisk(tmp_path, StorageConfig()) as disk:
        log, _ = open_log(disk, "x", log_id=LogId(1), config=CONFIG)
        encoded = encode(Columns(values=["\x1b[2J\x9b2J\u202e".encode()], timestamps=1))
        log.append(encoded, now_ns=1)
        log.close()
    assert penstock("dump", tmp_path / "x") == Exit.OK
    assert capsys.readouterr().out.rstrip("\n").isprintable()


def test_dump_wants_one_log(data, capsys) -> None:
    write_log(data, "logs/orders.1/partition-1/messages", 78)
    assert penstock("dump", data) == Exit.USAGE
    assert str(data / LOG) in capsys.readouterr().err


def test_figures_are_those_of_the_log(data, capsys) -> None:
    assert penstock("stats", data, "--json") == Exit.OK
    (stats,) = lines_of(capsys)
    assert (stats["start_offset"], stats["end_offset"], stats["messages"]) == (0, 40, 40)
    assert (stats["batches"], stats["messages_per_batch"]) == (20, 2.0)
    assert stats["bytes"] == sum(file.stat().st_size for file in segments(data))
    assert stats["first_append_time"] == "2023-11-14T22:13:20.000000000Z"
    assert stats["last_append_time"] == "2023-11-14T22:13:20.000000019Z"
    assert stats["epochs"] == [[1, 0]]
    *sealed, newest = (segment["index"] for segment in stats["segments"])
    assert ({*sealed}, newest) == ({"good"}, "none")
    assert stats["compression_ratio"] > 1
    assert penstock("stats", data) == Exit.OK
    assert "  epochs       1 from offset 0\n" in capsys.readouterr().out


def test_figures_say_what_is_missing_and_what_cannot_be_read(data, capsys) -> None:
    (data / LOG / f"{0:020d}.index").unlink()
    (data / LOG / f"{segments(data)[1].stem}.index").write_bytes(b"")
    flip(segments(data)[2], 20)
    assert penstock("stats", data, "--json") == Exit.OK
    (stats,) = lines_of(capsys)
    assert [segment["index"] for segment in stats["segments"]][:2] == ["missing", "wrong"]
    assert stats["unreadable_bytes"] > 0
    assert penstock("stats", data) == Exit.OK
    assert "UNREADABLE" in capsys.readouterr().out


COMMANDS = ("dump", "verify", "repair", "stats")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_without_a_log_is_refused_in_one_line(command, tmp_path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    for name, code in (("empty", Exit.REFUSED), ("file", Exit.USAGE), ("missing", Exit.USAGE)):
        assert penstock(command, tmp_path / name) == code
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.splitlines()[-1].startswith("Error: ")
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_examples(command, capsys) -> None:
    assert penstock(command, "--help") == Exit.OK
    assert "Examples:" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
def test_no_permission_is_one_line(command, mode, data, capsys) -> None:
    # Imported first as this user: another user may not be able to read the modules.
    assert penstock(command, data) == Exit.OK
    capsys.readouterr()
    for directory in (data, *(data / LOG).relative_to(data).parents):
        (data / directory).chmod(0o755)
    (data / LOG).chmod(mode)
    with as_nobody(data):
        code = penstock(command, data / LOG)
    shown = capsys.readouterr()
    assert code in {Exit.USAGE, Exit.REFUSED, Exit.UNAVAILABLE}
    assert shown.err.splitlines()[-1].startswith("Error: ")
    assert "ermission denied" in shown.err


def garbage_in(directory: Path, chance: random.Random) -> None:
    """Files with the right names and anything inside; or nearly the right names."""
    names = ["identity", "checkpoint", f"{0:020d}.log", f"{9:020d}.log", f"{0:020d}.index"]
    names += ["0.log", f"{0:020d}.snapshot", f"{5:020d}.cut-x", "99999999999999999999.log", "x.tmp"]
    good = [file.read_bytes() for file in directory.iterdir() if file.is_file()]
    for name in chance.sample(names, chance.randint(1, len(names))):
        path = directory / name
        kind = chance.randrange(5)
        if kind == 0 and not path.exists():
            path.mkdir()
        elif kind == 1 and not path.exists():
            path.symlink_to(chance.choice(["/dev/null", "nowhere", "."]))
        elif path.is_dir() or path.is_symlink():
            continue
        elif kind == 2 and good:
            path.write_bytes(chance.choice(good))
        else:
            path.write_bytes(chance.randbytes(chance.choice((0, 1, 24, 100, 3000))))


def test_whatever_is_in_a_directory_there_is_an_answer(data, tmp_path, effort, capsys) -> None:
    """An exception that is none of ours would leave `run` and fail this test."""
    for seed in range(effort(check=25, test=40, torture=3000)):
        chance = random.Random(seed)
        copy = tmp_path / f"copy-{seed}"
        shutil.copytree(data, copy)
        if chance.random() < 0.3:
            shutil.rmtree(copy / LOG)
            (copy / LOG).mkdir()
        garbage_in(copy / LOG, chance)
        for command in chance.sample(COMMANDS, 4):
            more = ["--json"] if chance.random() < 0.5 else []
            assert penstock(command, copy / LOG, *more) in set(Exit), f"seed {seed}"
        shutil.rmtree(copy)
        capsys.readouterr()


def test_a_bar_is_shown_on_a_terminal_and_goes_to_stderr(data, monkeypatch, capsys) -> None:
    assert penstock("verify", data) == Exit.OK
    plain = capsys.readouterr()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert penstock("verify", data) == Exit.OK
    shown = capsys.readouterr()
    assert shown.out == plain.out
    assert len(shown.err) > len(plain.err) == 0


def test_ctrl_c_in_a_repair_says_how_to_finish_it(data, monkeypatch, capsys) -> None:
    flip(segments(data)[1], 300)

    def interrupted(*_words: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("penstock.log.doctor.repair._Repair._change", interrupted)
        assert penstock("repair", data) == Exit.INTERRUPTED
    assert "run the repair again" in capsys.readouterr().err
    assert penstock("verify", data) == Exit.FOUND_PROBLEMS
    assert "a repair was interrupted" in capsys.readouterr().out
    assert penstock("repair", data) == Exit.OK
    assert penstock("verify", data) == Exit.OK


def test_a_copy_of_a_log_can_be_checked_and_repaired_anywhere(data, tmp_path, capsys) -> None:
    copy = tmp_path / "backup" / "messages"
    shutil.copytree(data / LOG, copy)
    flip(min(copy.glob("*.log")), 10)
    assert penstock("verify", copy) == Exit.FOUND_PROBLEMS
    assert penstock("repair", copy) == Exit.OK
    assert penstock("verify", tmp_path / "backup") == Exit.OK


def test_a_link_that_leads_back_up_is_followed_once(data, capsys) -> None:
    (data / "logs" / "loop").symlink_to(data)
    assert penstock("verify", data, "--json") == Exit.OK
    assert len(lines_of(capsys)) == 1
