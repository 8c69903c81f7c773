"""The database file: writers that are killed, torn lines, many writers at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.errors import InputError
from nautilus.tune.database import commands as dbtool
from nautilus.tune.database.rows import Key
from nautilus.tune.database.store import append, rewrite, rows, select, user_path
from tests.shipped import ROOT
from tests.tune.made import KEY, damaged, row

OTHER = Key("e" * 16, {"M": 8}, "sm_80", "fast")

WRITER = """
import sys
from pathlib import Path
from nautilus.tune.database.store import append
from tests.tune.made import row
who, path = sys.argv[1], Path(sys.argv[2])
n = int(sys.argv[3])
while True:
    append(path, [row(name=f"{who}-{n}", reason="x" * 3000)])
    print(n, flush=True)
    n += 1
"""


def writer(who: str, path: Path, first: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, who, str(path), str(first)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_rows_come_back_in_order_by_key(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "db.jsonl"
    assert rows(path) == () and select(path, KEY.hash) == ()
    append(path, [row(name="a"), row(OTHER, name="b")])
    append(path, [row(name="c")])
    assert [r.name for r in rows(path)] == ["a", "b", "c"]
    assert [r.name for r in select(path, KEY.hash)] == ["a", "c"]
    assert [r.name for r in select(path, OTHER.hash)] == ["b"]
    assert select(path, "0" * 16) == ()


def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "db.jsonl"
    append(path, [row(name="a")])
    with path.open("ab") as file:
        file.write(row(name="torn").line().encode()[:200])
    assert [r.name for r in select(path, KEY.hash)] == ["a"]
    append(path, [row(name="b")])
    assert [r.name for r in rows(path)] == ["a", "b"] == [r.name for r in select(path, KEY.hash)]
    assert damaged(path) == 1


def test_killed_in_a_loop_it_loses_the_row_in_flight_at_most(tmp_path: Path) -> None:
    path, chance = tmp_path / "db.jsonl", random.Random(7)
    said: list[str] = []
    for k in range(5):
        process = writer(str(k), path)
        assert process.stdout is not None
        process.stdout.readline()
        said.append(f"{k}-0")
        time.sleep(0.05 * chance.random())
        process.send_signal(signal.SIGKILL)
        said += [f"{k}-{line.strip()}" for line in process.stdout.read().splitlines()]
        process.wait()
    found = [r.name for r in rows(path)]
    assert len(found) == len(set(found))
    assert set(said) <= set(found)  # every row that a writer has stored is there
    assert len(found) <= len(said) + 5
    assert damaged(path) <= 5


def test_writers_and_a_collector_at_once(tmp_path: Path) -> None:
    path = tmp_path / "db.jsonl"
    writers = [writer(who, path) for who in "ab"]
    for process in writers:
        assert process.stdout is not None
        process.stdout.readline()
    for _ in range(10):
        rewrite(path, lambda found: found)
    said = []
    for who, process in zip("ab", writers, strict=True):
        assert process.stdout is not None
        process.terminate()
        said += [f"{who}-{n}" for n in process.stdout.read().split()]
        process.wait()
    assert set(said) <= {r.name for r in rows(path)}
    assert damaged(path) == 0 or damaged(path) <= 2


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NAUTILUS_DB", "/x/y.jsonl")
    assert user_path() == Path("/x/y.jsonl")
    monkeypatch.delenv("NAUTILUS_DB")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert user_path() == tmp_path / "nautilusc" / "tuning.jsonl"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # the specification has it ignored
    assert user_path() == Path(os.path.expanduser("~/.local/share/nautilusc/tuning.jsonl"))


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write the tuning database"):
        append(tmp_path / "file" / "db.jsonl", [row()])
    assert select(tmp_path, KEY.hash) == ()  # a folder


def test_merge_adds_what_is_new(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    append(a, [row(name="x"), row(name="y")])
    append(b, [row(name="y"), row(name="z"), row(name="z")])
    with b.open("a") as file:
        file.write("nonsense\n")
    assert dbtool.merge(a, [b]) == (1, 1)
    assert [r.name for r in rows(a)] == ["x", "y", "z"]
    assert dbtool.merge(a, [b, a]) == (0, 1)


def test_merge_refuses_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\nworld\n")
    with pytest.raises(InputError, match="is no tuning database"):
        dbtool.merge(tmp_path / "a", [tmp_path / "text"])


def test_collect_keeps_the_best_and_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "db"
    found = [row(name=f"n{k}", samples=(1e-3 * (k + 1),), schedule_hash=f"h{k}") for k in range(6)]
    append(path, [*found, row(name="rules", rules=True, samples=(1.0,)), row(name="bad", state="wrong", checked=False)])
    append(path, [found[0], row(name="model", measure="model", checked=False)])
    assert dbtool.collect(path, 2) == (10, 3)
    assert [r.name for r in rows(path)] == ["n0", "n1", "rules"]
    assert dbtool.collect(tmp_path / "none", 2) == (0, 0)
    assert not (tmp_path / "none").exists()


def test_collect_drops_rows_of_an_older_format(tmp_path: Path) -> None:
    path = tmp_path / "db"
    old = replace(row(name="old", samples=(1e-6,)), schedule={**(row().schedule or {}), "version": 1})
    append(path, [old, row(name="new"), replace(old, name="older")])
    assert not old.usable and row().usable
    assert dbtool.outdated_text(path).startswith(f"{path}: 2 rows have a schedule of an older format")
    assert dbtool.collect(path, 5) == (3, 1)
    assert [r.name for r in rows(path)] == ["new"] and dbtool.outdated_text(path) == ""


def test_export_gives_the_best_of_each_key(tmp_path: Path) -> None:
    path = tmp_path / "db"
    append(path, [row(name="slow", samples=(2.0,)), row(name="fast", samples=(1.0,)), row(OTHER, name="other")])
    text = dbtool.exported(path, "", False)
    (tmp_path / "out").write_text(text)
    assert [r.name for r in rows(tmp_path / "out")] == ["fast", "other"]
    assert len(dbtool.exported(path, "", True).splitlines()) == 3
    assert dbtool.exported(path, "slow", False).count("\n") == 1


def test_a_row_of_two_databases_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, shipped = tmp_path / "user", tmp_path / "shipped"
    append(shipped, [row(name="both"), row(OTHER, name="shipped")])
    append(user, [row(name="both")])
    monkeypatch.setattr(dbtool, "user_path", lambda: user)
    monkeypatch.setattr(dbtool, "SHIPPED", shipped)
    assert [(r["name"], r["source"]) for r in dbtool.listing(None, "")] == [("both", "user"), ("shipped", "shipped")]
    assert [r.name for r in dbtool.showing(None, "", 5)] == ["both", "shipped"]
