"""The fuzzer of the command line: any arguments give a documented exit code, and write no file but their outputs."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from nautilus.cli.main import main
from tests.fuzz.case import OK, Fuzzer, Verdict

SPEC = "dim M = 4, N = 6\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n"
_CODES = {0, 1, 2, 3, 4, 5}
#: files that a command may make in its folder, and the folders of dumps and of results
_OUTPUTS = {"k.cu", "k.json", "k.vr", "k.ma", "k.scalar", "db.jsonl", "dumps", "out"}
_FOLDERS = ("--dump-dir", "--output-dir")  # the word after one of them names a folder
_OUTPUTS |= {f"s.{form}" for form in ("cu", "ma")}  # beside the spec, for the forms of _WORDS
_WORDS = (
    "compile", "check", "run", "explain", "db", "ls", "show", "export", "merge", "gc", "schedule", "--reference",
    "s.naut", "s.naut", "s.naut", "missing.naut", "bad.naut", "../s.naut", "/dev/null", "-", "--", "-o", "k.cu",
    "k.json", "k.vr", "k.ma", "k.scalar", "k.xyz", "/proc/x.cu", "--emit", "cu", "ma", "--arch", "sm_90a", "sm_80",
    "sm_1", "--arch=sm_120", "-arch=sm_86", "--dim", "M=8", "M=0", "M=-1", "M=x", "Q=3", "M=99999999999999999999",
    "--schedule", "k.json", "-O", "0", "1", "2", "7", "-O1", "--precision", "strict", "odd", "--dump-ir", "all", "fuse",
    "--dump-dir", "dumps", "--time-passes", "--print-passes", "--diagnostics", "json", "--json", "-v", "-q", "--help",
    "--version", "--input", "X=x.npy", "X=", "Y=x.npy", "--set", "eps=1", "--seed", "3", "-3", "--stage", "spec",
    "vr-tile", "--output-dir", "out", "--device", "cpu", "nan", "\udc80", "", " ", "ä", "--unknown", "%s", "{}", "\n",
)  # fmt: skip


def make(seed: int) -> str:
    """Arguments as a JSON list."""
    r = random.Random(seed)
    start = r.choice(([], ["compile", "s.naut"], ["run", "s.naut"], ["check", "s.naut"], ["explain", "s.naut"], ["db"]))
    return json.dumps([*start, *(r.choice(_WORDS) for _ in range(r.randint(0, 6)))])


def attempt(text: str, _seed: int) -> Verdict:
    """The verdict on one call in a folder of its own."""
    arguments = json.loads(text)
    if "tune" in arguments or "bench" in arguments:
        return OK
    before, home = os.getcwd(), set(os.listdir(Path.home()))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "s.naut").write_text(SPEC)
        Path(folder, "bad.naut").write_text(SPEC + "Y[i] = X[i\n")
        os.chdir(folder)
        try:
            verdict = run(arguments, _CODES, db=Path(folder, "db.jsonl"))
            made = {str(p) for p in Path().iterdir()} - {"s.naut", "bad.naut"}
        finally:
            os.chdir(before)
    named = {Path(b).parts[0] for a, b in pairwise(arguments) if a in _FOLDERS and Path(b).parts}
    extra = (made - _OUTPUTS - named) | (set(os.listdir(Path.home())) - home)
    if verdict is OK and extra and "-o" not in arguments:
        return Verdict("wrong", "files", f"made {sorted(extra)}")
    return verdict


def run(arguments: Sequence[str], allowed: set[int], db: Path | None = None) -> Verdict:
    """``main`` with ``arguments``: its exit code is one of ``allowed``, and it prints no traceback."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    old = os.environ.get("NAUTILUS_DB")
    os.environ["NAUTILUS_DB"] = str(db) if db is not None else os.devnull
    terminal, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO())  # an empty terminal
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.stdin = terminal
        if old is None:
            del os.environ["NAUTILUS_DB"]
        else:
            os.environ["NAUTILUS_DB"] = old
    err.seek(0)
    said = err.read()
    if code not in allowed or "Traceback" in said:
        last = said.strip().splitlines()[-1:] or [""]
        return Verdict("internal", f"exit {code}", f"{' '.join(arguments)!r}: {said.strip()[-400:] or last[0]}")
    return OK


def smaller(text: str) -> Iterator[str]:
    """The call without one argument."""
    arguments = json.loads(text)
    for at in range(len(arguments)):
        yield json.dumps(arguments[:at] + arguments[at + 1 :])


def fuzzers() -> tuple[Fuzzer, ...]:
    return (Fuzzer("command-line", make, attempt, smaller, ".json"),)
