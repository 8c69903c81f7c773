"""The cache of outputs: hits, keys, damage, size, several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nautilus import driver
from nautilus.cli.main import main
from nautilus.export import cache, cache_key
from nautilus.export.cache import Entry

SPEC = "dim M = 4\ninput X: f32[M]\ninput unread: f32[M]\noutput Y: f32[M]\nY[i] = X[i] + 1\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty cache."""
    monkeypatch.setenv("NAUTILUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NAUTILUS_CACHE_BYTES", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "k.naut"
    path.write_text(SPEC)
    return path


def entries(place: Path) -> list[Path]:
    return sorted(place.iterdir()) if place.exists() else []


def compiled(spec: Path, *options: str) -> bytes:
    output = spec.parent / "k.cu"
    assert main([str(spec), "-o", str(output), "--arch", "sm_80", *options]) == 0
    return output.read_bytes()


def test_the_second_compilation_runs_no_compiler(
    place: Path, spec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, said = compiled(spec), capsys.readouterr().err
    assert "unread" in said and len(entries(place)) == 1

    def fails(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(driver, "compile_checked", fails)
    assert compiled(spec) == first and capsys.readouterr().err == said
    with pytest.raises(AssertionError, match="compiled again"):
        driver.compile_checked(None)  # type: ignore[arg-type]
    assert main([str(spec), "-o", str(spec.parent / "k.cu"), "--arch", "sm_80", "--no-cache"]) == 70


def test_what_decides_the_bytes_is_in_the_key(place: Path, spec: Path) -> None:
    (spec.parent / "part.naut").write_text("def f(x) = x + 1\n")
    spec.write_text('include "part.naut"\n' + SPEC.replace("X[i] + 1", "f(X[i])"))
    compiled(spec, "-q")
    for options in (["-q", "--dim", "M=8"], ["-q", "--precision", "strict"], ["-q", "--name", "other"], ["-q", "-O1"]):
        before = len(entries(place))
        compiled(spec, *options)
        assert len(entries(place)) == before + 1, options
    before = len(entries(place))
    first = compiled(spec, "-q")
    assert len(entries(place)) == before
    (spec.parent / "part.naut").write_text("def f(x) = x + 2\n")
    assert compiled(spec, "-q") != first and len(entries(place)) == before + 1


def test_an_empty_schedule_file_is_refused_whatever_is_kept(
    place: Path, spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, empty = tmp_path / "k.cu", tmp_path / "empty.json"
    empty.write_text("")
    assert main([str(spec), "-o", str(out)]) == 0
    assert main([str(spec), "-o", str(out), "--schedule", str(empty)]) == 2
    assert "it is no JSON file" in capsys.readouterr().err


def test_the_compiler_and_the_database_are_in_the_key(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {cache_key.key_of(spec, None, {})}
    monkeypatch.setenv("NAUTILUS_DB", str(tmp_path / "db.jsonl"))
    keys.add(cache_key.key_of(spec, None, {}))
    (tmp_path / "db.jsonl").write_text("{}\n")
    keys.add(cache_key.key_of(spec, None, {}))
    monkeypatch.setattr(cache_key, "sources", lambda: "another compiler")
    keys.add(cache_key.key_of(spec, None, {}))
    monkeypatch.setattr(cache_key, "nvrtc", lambda: ["another NVRTC"])
    keys.add(cache_key.key_of(spec, None, {}))
    monkeypatch.setattr(cache_key, "gpus", lambda: ["another GPU"])
    keys.add(cache_key.key_of(spec, None, {}))
    keys.add(cache_key.key_of(spec, None, {}, [sys.executable]))
    assert len(keys) == 7


def test_a_changed_file_of_the_compiler_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "package" / "room" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text("a = 1")
    monkeypatch.setattr(cache_key, "_PACKAGE", tmp_path / "package")
    first, at = cache_key.sources.__wrapped__(), file.stat()
    assert cache_key.sources.__wrapped__() == first
    while file.stat().st_ctime_ns == at.st_ctime_ns:  # clocks of file systems tick a few hundred times a second
        file.write_text("a = 2")
        os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert file.stat().st_mtime_ns == at.st_mtime_ns and file.stat().st_size == at.st_size
    assert cache_key.sources.__wrapped__() != first


@pytest.mark.parametrize("damage", [b"", b"nautilusc cache 1\n", b"\x80\x04\x95pickled"])
def test_damage_costs_a_warning(damage: bytes, place: Path, spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = compiled(spec, "-q")
    (path,) = entries(place)
    whole = path.read_bytes()
    for data in (damage, whole[:-1], whole[:-1] + b"?", whole.replace(b'"about"', b'"about_')):
        path.write_bytes(data)
        assert compiled(spec, "-q") == first
        assert f"warning: {path} is damaged" in capsys.readouterr().err
        assert path.read_bytes() == whole


def test_the_size_is_limited(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAUTILUS_CACHE_BYTES", "2500")
    for n in range(4):
        cache.store(f"{n}", Entry({"": bytes(1000)}, {}))
        os.utime(place / f"{n}.entry", (n, n))
        if n == 1:
            assert cache.find("0") is not None  # now the one that was used last
    assert [p.name for p in entries(place)] == ["0.entry", "3.entry"]


def test_a_folder_that_cannot_be_written_keeps_nothing(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAUTILUS_CACHE", str(spec / "no folder"))
    assert compiled(spec, "-q") == compiled(spec, "-q")


def test_processes_share_entries(place: Path) -> None:
    script = (
        "import sys\nfrom nautilus.export.cache import Entry, find, store\n"
        "for n in range(60):\n"
        "    store('shared', Entry({'': bytes([int(sys.argv[1])]) * 20000}, {}))\n"
        "    data = find('shared').files['']\n"
        "    assert len(data) == 20000 and len(set(data)) == 1\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(n)], stderr=subprocess.PIPE, text=True) for n in range(3)
    ]
    assert [(p.communicate()[1], p.returncode) for p in running] == [("", 0)] * 3
    assert [p.name for p in entries(place)] == ["shared.entry"]


def test_pipes_are_read_once(place: Path, spec: Path, tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    assert main([str(spec), "-o", str(schedule), "--arch", "sm_80", "-q", "--no-cache"]) == 0
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'w').write(open({str(schedule)!r}).read())"]):
        assert compiled(spec, "-q", "--schedule", str(pipe)) == compiled(spec, "-q", "--schedule", str(schedule))
    assert len(entries(place)) == 1


def test_a_file_that_changes_meanwhile_is_not_kept(place: Path, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = driver.compile_checked

    def changes(*arguments: Any) -> Any:
        made = real(*arguments)
        spec.write_text(SPEC.replace("+ 1", "+ 2"))
        return made

    monkeypatch.setattr(driver, "compile_checked", changes)
    compiled(spec, "-q")
    assert entries(place) == []
