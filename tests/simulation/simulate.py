"""Compiles a printed ``.cu`` file with the host's C++ compiler and runs it on the simulated GPU.

The GPU is compiled once for each machine and content of ``machine/``, into the folder for temporary files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from functools import lru_cache
from pathlib import Path

import numpy as np

from nautilus.check.inputs import InputSet
from nautilus.core.buffers import Buffer, Space, extents
from nautilus.core.index.strides import places, span, spread
from nautilus.core.numerics import Array, from_storage, storage_array
from nautilus.core.types import DType
from nautilus.cuda.host.capacity import hosted
from nautilus.cuda.host.launcher import plan_bytes
from nautilus.cuda.host.workspace import buffer_bytes, workspace_sizes
from nautilus.cuda.names import module_names
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.runtime.capacity import at_capacity, at_sizes
from tests.runtime.kept import identity, kept
from tests.simulation.translate import translate

MACHINE = Path(__file__).parent / "machine"
COMPILER = shutil.which("g++")
MISSING = "" if COMPILER and os.uname().machine == "x86_64" else "the printed text runs only with g++ on x86-64"
POLICIES = range(5)  # seeds of different schedulers, see machine/machine.cpp

_COMMON = ("-std=c++17", "-fwrapv", "-ffp-contract=off", "-I", str(MACHINE))
#: most kernels run for a tenth of the time that they compile: -Og compiles for half as long again, and they run for a
#: third less
_KERNEL = (
    *_COMMON, "-O0", "-w", "-fsanitize=thread", "-fsanitize=bounds", "-fno-strict-aliasing", "-fstack-reuse=none",
    "-fno-tree-loop-distribute-patterns", "-fno-builtin-memcpy", "-fno-threadsafe-statics",
)  # fmt: skip
_FLAGS = _KERNEL[len(_COMMON) :]
_PRELUDE = "prelude.h"
_LINKER = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()


class HostError(Exception):
    """The printed text does not compile for the host."""


class Fault(Exception):
    """The simulated GPU stopped with a message."""


@dataclass(frozen=True, slots=True)
class Program:
    """An executable of a printed text and its module."""

    path: Path
    module: MemModule


def build(text: str, module: MemModule, given: InputSet, folder: Path, *, planned: bool = False) -> Program:
    """Compile ``text``, which was printed for ``module``, with the scalars of ``given``. Raises HostError.

    ``planned``: a plan is prepared once and launched twice, and the outputs are those of the second launch.
    Runtime sizes are read when the program runs, so that it serves all of them.
    """
    source, target = folder / "kernel.cpp", folder / "kernel"
    arch = "".join(c for c in module.target if c.isdigit())
    head = f'#include "{_PRELUDE}"\n#define __CUDA_ARCH__ {arch}0\n'
    source.write_text(head + translate(text) + _main(module, given, planned))
    machine = _machine()

    def make() -> bytes:
        _compile(["-I", str(machine), *_KERNEL, "-c", str(source), "-o", f"{target}.o"])
        _compile([*_LINKER, f"{target}.o", *map(str, sorted(machine.glob("*.o"))), "-o", str(target)])
        return target.read_bytes()

    assert COMPILER is not None
    target.write_bytes(kept((source.read_text(), machine.name, *identity(COMPILER)), make))
    target.chmod(0o755)
    return Program(target, module)


def execute(
    program: Program, given: InputSet, seeds: Sequence[int], timeout: float = 60.0, *,
    blocks: Sequence[int] = (), before: Collection[str] = (),
) -> list[dict[str, Array]]:  # fmt: skip
    """The outputs by name under each seed, stored values as :func:`from_storage` gives them. Raises Fault.

    ``blocks``: those of each launch that run, with the others of their clusters; none: all.  ``before``: outputs that
    ``given`` has contents of.
    """
    folder, module = program.path.parent, hosted(program.module)
    arrays = at_capacity(program.module, given.arrays, given.sizes)
    given_buffers = [b for b in module.buffers if b.space is not Space.TEMP]
    roles = {Space.INPUT: "i", Space.OUTPUT: "o"}
    sizes = [_bytes(b, given.sizes) for b in given_buffers]
    rows = zip(given_buffers, sizes, strict=True)
    kinds = {b.name: "b" if b.name in before else roles[b.space] for b in given_buffers}
    (folder / "layout").write_text("".join(f"{kinds[b.name]} {size}\n" for b, size in rows))
    for n, b in enumerate(given_buffers):
        if b.space is Space.INPUT or b.name in before:
            stored = storage_array(arrays[b.name], b.dtype)
            if b.strides is not None:
                stored = spread(stored, extents(b.shape, given.sizes), extents(b.strides, given.sizes))
            stored.tofile(folder / f"in{n}")
    command = [str(program.path), str(folder), *map(str, seeds)]
    env = {**os.environ, **{f"SIZE_{name}": str(size) for name, size in given.sizes.items()}}
    env |= {"BLOCKS": " ".join(map(str, blocks))} if blocks else {}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout, check=False, env=env
        )
    except subprocess.TimeoutExpired:
        raise Fault(f"no end after {timeout} seconds") from None
    if done.returncode:
        raise Fault(done.stderr.strip() or f"exit status {done.returncode}")
    outputs = [(n, b) for n, b in enumerate(given_buffers) if b.space is Space.OUTPUT]
    made = [{b.name: _read(folder / f"out{n}.{seed}", b, given.sizes) for n, b in outputs} for seed in seeds]
    return [at_sizes(program.module, x, given.sizes) for x in made]


def _bytes(b: Buffer, sizes: Mapping[str, int]) -> int:
    if b.strides is None:
        return extents([buffer_bytes(b)], sizes)[0]
    return span(extents(b.shape, sizes), extents(b.strides, sizes)) * b.dtype.bytes


def _read(path: Path, b: Buffer, sizes: Mapping[str, int]) -> Array:
    stored = np.fromfile(path, storage_array(np.zeros(1), b.dtype).dtype)
    if b.strides is not None:
        stored = places(stored, extents(b.shape, sizes), extents(b.strides, sizes))
    return from_storage(stored.reshape(extents(b.array_shape, sizes)), b.dtype)


def _main(module: MemModule, given: InputSet, planned: bool) -> str:
    module = hosted(module)
    names = module_names(module)
    count = sum(b.space is not Space.TEMP for b in module.buffers)
    scalars = {**given.scalars, **given.sizes}
    sizes = {p.name: f'atoi(getenv("SIZE_{p.name}"))' for p in module.params if p.most is not None}
    values = [sizes.get(p.name) or _literal(scalars.get(p.name, p.default), p.dtype) for p in module.params]
    args = ", ".join([*(f"a.buffers[{n}]" for n in range(count)), *values, "a.workspace", "nullptr"])
    call = f"[](host::Arguments a) {{ return {names.launch}({args}); }}"
    if planned:
        given_buffers = [b for b in module.buffers if b.space is not Space.TEMP]
        outputs = [(n, _bytes(b, given.sizes)) for n, b in enumerate(given_buffers) if b.space is Space.OUTPUT]
        poison = " ".join(f"memset(a.buffers[{n}], 0xff, {size});" for n, size in outputs)
        again = f"{names.launch_prepared}(plan, nullptr)"
        call = (
            f"[](host::Arguments a) {{ alignas(64) static unsigned char plan[{plan_bytes(module)}];"
            f" if (int status = {names.prepare}(plan, {args})) return status;"
            f" if (int status = {again}) return status; {poison} return {again}; }}"
        )
    scratch = f"{names.workspace}({', '.join(sizes[name] for name in workspace_sizes(module))})"
    main = f"int main(int count, char** words) {{ return host::main(count, words, {scratch}, {call}); }}"
    return f"\n#include <stdlib.h>\n#include <string.h>\n{main}\n"


def _literal(value: object, dtype: DType) -> str:
    if dtype.is_half or dtype.is_float8:
        return str(int(storage_array(np.asarray([value]), dtype).view(np.uint16 if dtype.is_half else np.uint8)[0]))
    if isinstance(value, float):
        return f"({'float' if dtype is DType.F32 else 'double'}){value.hex()}"
    return str(value).lower()


@lru_cache(maxsize=1)
def _machine() -> Path:
    """The folder with the object files of the simulated GPU, and with the compiled header of printed texts.

    Reading the headers takes a third of the time of a small kernel.
    """
    content = b"".join(p.read_bytes() for p in sorted(MACHINE.iterdir())) + " ".join(_FLAGS).encode()
    folder = Path(tempfile.gettempdir()) / f"nautilus-host-{os.getuid()}-{hashlib.sha256(content).hexdigest()[:16]}"
    with open(f"{folder}.lock", "w") as lock:
        flock(lock, LOCK_EX)  # other processes of the tests wait
        if not folder.exists():
            made = Path(tempfile.mkdtemp(dir=tempfile.gettempdir()))
            todo = [[*_COMMON, "-O2", "-c", str(p), "-o", str(made / f"{p.stem}.o")] for p in MACHINE.glob("*.cpp")]
            shutil.copy(MACHINE / _PRELUDE, made)
            todo.append([*_KERNEL, "-x", "c++-header", str(MACHINE / _PRELUDE), "-o", str(made / f"{_PRELUDE}.gch")])
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(_compile, todo))
            made.rename(folder)
    return folder


def _compile(arguments: Iterable[str]) -> None:
    assert COMPILER is not None
    done = subprocess.run([COMPILER, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostError(done.stderr[:4000])
