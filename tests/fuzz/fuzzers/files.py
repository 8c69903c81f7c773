"""Fuzzers of files that the program reads: the tuning database and arrays.

A damaged database costs its damaged lines and nothing else.  A damaged array is refused with an error that a user is
meant to see.  A case holds bytes, in hexadecimal digits.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from unittest.mock import patch

import numpy as np

from nautilus.frontend.semantics.check import load_spec
from nautilus.runtime import nvrtc
from nautilus.tune.database import store
from nautilus.tune.database.rows import key_of
from tests.fuzz.case import OK, Fuzzer, Verdict, internal
from tests.fuzz.fuzzers.command_line import SPEC, run
from tests.shipped import ROOT

_TUNED = ROOT / "specs/matmul/f16.naut"


def _damaged(r: random.Random, data: bytes) -> bytes:
    for _ in range(r.randint(0, 4)):
        at, other = r.randrange(len(data) + 1), r.randrange(len(data) + 1)
        match r.randint(0, 4):
            case 0:
                data = data[:at] + bytes([r.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at]
            case 2:
                data = data[: min(at, other)] + data[max(at, other) :]
            case 3:
                data = data[:at] + r.randbytes(r.randint(1, 40)) + data[at:]
            case 4:
                data = data[:at] + data[min(at, other) : max(at, other)] + data[at:]
    return data


def _halves(text: str) -> Iterator[str]:
    size = len(text) // 4 * 2
    while size >= 2:
        for at in range(0, len(text), size):
            yield text[:at] + text[at + size :]
        size = size // 4 * 2


# -- the database
def make_database(seed: int) -> str:
    """Lines of the shipped database, some with other values, and damaged bytes."""
    r = random.Random(seed)
    lines = _rows()
    chosen = [r.choice(lines) for _ in range(r.randint(1, 3))]
    if r.random() < 0.5:
        row = json.loads(chosen[0])
        key = r.choice(sorted(row))
        row[key] = r.choice((None, "", -1, 1e400, [], {}, "x" * 100, [[]], {"kernels": 5}))
        chosen[0] = json.dumps(row, separators=(",", ":")).encode()
    return _damaged(r, b"\n".join(chosen) + b"\n").hex()


@cache
def _rows() -> tuple[bytes, ...]:
    """The lines of the shipped database with schedules for one shipped spec."""
    key = key_of(load_spec(_TUNED), "sm_90a", "fast").hash
    return tuple(x.line().rstrip("\n").encode() for x in store.select(store.SHIPPED, key))


def attempt_database(text: str, seed: int) -> Verdict:
    """The verdict on reading, selecting from, and, for every fourth seed, compiling with a database."""
    with tempfile.TemporaryDirectory() as folder, patch.object(nvrtc, "compile_cuda", _remembered):
        path, cuda = Path(folder, "db.jsonl"), Path(folder, "k.cu")
        path.write_bytes(bytes.fromhex(text))
        use = [["-O2", str(_TUNED), "-o", str(cuda)]] if seed % 4 == 0 else []
        for arguments in (["db", "ls"], *use, ["db", "gc"]):
            verdict = run(arguments, allowed={0}, db=path)
            if verdict is not OK:
                return verdict
    return OK


_compile = nvrtc.compile_cuda


@lru_cache(maxsize=64)
def _compiled(text: str, arch: str) -> nvrtc.Compiled:
    return _compile(text, arch)


def _remembered(text: str, arch: str, *_form: object, **_names: object) -> nvrtc.Compiled:
    """The compilation of a text by NVRTC, done once: cases differ in their databases and share their kernels."""
    return _compiled(text, arch)


# -- arrays
def make_array(seed: int) -> str:
    """An .npy or .npz file of some type and shape, damaged."""
    r = random.Random(seed)
    kind = r.choice(("f4", "f8", "f2", "i4", "u1", "?", "c8", "U3", "O", "i8", "M8[s]"))
    shape = r.choice(((4, 6), (6, 4), (24,), (), (4, 0), (1, 4, 6)))
    x = np.zeros(shape, kind)
    out = io.BytesIO()
    if r.random() < 0.8:
        np.save(out, x, allow_pickle=True)
    else:
        np.savez(out, X=x)
    data = out.getvalue()
    if r.random() < 0.3:
        data = data.replace(b"(4, 6)", b"(4, 6" + b"9" * r.randint(1, 30) + b")")
    return _damaged(r, data).hex()


def attempt_array(text: str, _seed: int) -> Verdict:
    """The verdict on a run with the file as its input."""
    with tempfile.TemporaryDirectory() as folder:
        path, spec = Path(folder, "x.npy"), Path(folder, "s.naut")
        path.write_bytes(bytes.fromhex(text))
        spec.write_text(SPEC)
        try:
            return run(["run", str(spec), "--stage", "spec", "--input", f"X={path}", "-q"], allowed={0, 1, 2})
        except Exception as error:
            return internal(error)


def fuzzers() -> tuple[Fuzzer, ...]:
    return (
        Fuzzer("database", make_database, attempt_database, _halves, ".hex"),
        Fuzzer("array", make_array, attempt_array, _halves, ".hex"),
    )
