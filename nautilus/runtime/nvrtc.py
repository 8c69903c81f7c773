"""Compiles CUDA C++ text to PTX or a cubin through NVRTC, and reads the resource report of ptxas.

NVRTC comes as a wheel and needs neither a GPU nor a driver.  Headers such as ``cuda_fp16.h`` come from the wheel of
the CUDA runtime, else from ``CUDA_HOME`` or ``CUDA_PATH``.

NVRTC 12.9 and later may take a cubin from a cache of its own (NVRTC, "Caching").  The log of ptxas says whether wgmma
instructions are serialised and which registers are spilled, and a cubin from a cache need not come with it, so no
compilation uses that cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from nautilus.core.errors import AssemblerError, MissingToolError, ToolchainError
from nautilus.core.records import dataclass
from nautilus.cuda.module import CudaModule
from nautilus.runtime.nvrtc_library import INVALID_OPTION, SUCCESS, NvrtcLibrary, nvrtc_library
from nautilus.runtime.toolkits import cuda_toolkits, wheels

OPTIONS = ("--std=c++17", "--ptxas-options=-v")
_UNCACHED, _CACHES_SINCE = "--no-cache", (12, 9)
_Made = TypeVar("_Made")
#: a key and the function that makes its bytes -> these bytes, made now or earlier
Store: TypeAlias = Callable[[tuple[object, ...], Callable[[], bytes]], bytes]
_store: Store | None = None
_NO_KERNELS: Mapping[str, str] = MappingProxyType({})  # the kernels of a text without a schedule


@dataclass(frozen=True, slots=True)
class Resources:
    """One kernel's use of a multiprocessor: registers a thread; stack, spills and static shared in bytes."""

    kernel: str
    registers: int
    stack_bytes: int
    spill_stores: int
    spill_loads: int
    shared_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Compiled:
    """``data`` is a cubin or PTX; ``resources`` in the order of the kernels in the text (cubin only)."""

    arch: str
    form: str
    data: bytes
    log: str
    resources: tuple[Resources, ...]


def build(module: CudaModule, arch: str, form: str = "cubin", line_info: str = "") -> Compiled:
    """Compile ``module`` as :func:`compile_cuda` does; errors name kernels as the schedule does.

    ``line_info``: the name of the text, whose lines the result then has; else no result depends on the header.
    """
    more, text = (("--generate-line-info",), module.text) if line_info else ((), module.code)
    return compile_cuda(text, arch, form, line_info or "kernel.cu", module.kernels, more)


def check(module: CudaModule, arch: str) -> tuple[str, tuple[Resources, ...]]:
    """Let ptxas check ``module``: the resources of its kernels, or the reason why that is never possible here.

    Raises AssemblerError as :func:`refuse_serialised` does, and ToolchainError where the text does not compile, or
    NVRTC fails, as without memory: the plan that it would have refused must not depend on that.
    """
    try:
        return "", build(module, arch).resources
    except MissingToolError as error:
        return error.args[0].partition("\n")[0], ()


def compile_cuda(
    text: str,
    arch: str,
    form: str = "cubin",
    name: str = "kernel.cu",
    kernels: Mapping[str, str] = _NO_KERNELS,
    more: Sequence[str] = (),
) -> Compiled:
    """Compile for ``arch`` (``sm_80``) to ``form`` cubin or ptx. ``kernels``: symbol -> name in the schedule.

    ``more``: further options of NVRTC.

    Raises ToolchainError with the compiler's log where the text does not compile, MissingToolError
    where NVRTC is missing or too old for ``arch``, and AssemblerError as :func:`refuse_serialised` does.
    """
    nvrtc = _library()
    target = arch if form == "cubin" else arch.replace("sm_", "compute_")
    uncached = (_UNCACHED,) if nvrtc.version() >= _CACHES_SINCE else ()
    options = (f"--gpu-architecture={target}", *OPTIONS, *uncached, *more, *(f"-I{p}" for p in include_paths()))
    data, log = _run(nvrtc, text, name, options, arch, form)
    if form == "cubin":
        refuse_serialised(text, log, kernels)
    resources = tuple(sorted(parse_resources(log), key=lambda r: _defined(text, r.kernel)))
    return Compiled(arch, form, data, log, resources)


def keep_results(store: Store | None) -> None:
    """Take the results of NVRTC from ``store`` where it has them, also those of earlier processes; None: from no store.

    ``store`` gets a key, which names all that a result depends on, and the function that makes the result.  An error of
    that function leaves the store as it is.
    """
    global _store
    _store = store
    _run.cache_clear()


@lru_cache(maxsize=64)
def _run(
    nvrtc: NvrtcLibrary, text: str, name: str, options: tuple[str, ...], arch: str, form: str
) -> tuple[bytes, str]:  # fmt: skip
    """The result and the log.  The last ones are kept: several outputs of one process often have the same text."""
    if _store is None:
        return _compiled(nvrtc, text, name, options, arch, form)

    def make() -> bytes:
        data, log = _compiled(nvrtc, text, name, options, arch, form)
        return json.dumps(log).encode() + b"\n" + data

    key = (text, name, _unplaced(options), arch, form, nvrtc.version(), nvrtc.build)
    log, _, data = _store(key, make).partition(b"\n")
    return data, json.loads(log)


def _unplaced(options: tuple[str, ...]) -> tuple[str, ...]:
    """``options`` with the headers of each folder instead of its path, which differs between environments.

    Line information names the files of headers, so that its paths stay.
    """
    if "--generate-line-info" in options:
        return options
    return tuple(_headers(Path(o[2:])) if o.startswith("-I") else o for o in options)


@lru_cache(maxsize=8)
def _headers(folder: Path) -> str:
    """The names and sizes of the headers in ``folder``."""
    return " ".join(sorted(f"{p.name}:{p.stat().st_size}" for p in folder.glob("*.h*")))


def _compiled(
    nvrtc: NvrtcLibrary, text: str, name: str, options: tuple[str, ...], arch: str, form: str
) -> tuple[bytes, str]:  # fmt: skip
    """The result and the log of one compilation. Raises ToolchainError."""
    program = _checked(nvrtc, *nvrtc.create(text, name))
    try:
        status = nvrtc.compile(program, list(options))
        log = _checked(nvrtc, *nvrtc.result(program, "ProgramLog")).rstrip(b"\0").decode("utf-8", "replace")
        if status != SUCCESS:
            raise _failure(nvrtc, status, arch, log)
        data = _checked(nvrtc, *nvrtc.result(program, "CUBIN" if form == "cubin" else "PTX"))
    finally:
        nvrtc.destroy(program)
    return (data.rstrip(b"\0") if form == "ptx" else data), log


def refuse_serialised(text: str, log: str, kernels: Mapping[str, str]) -> None:
    """Refuse a kernel whose wgmma instructions are serialised or whose accumulators spill, since both are slow.

    ``kernels`` maps symbols to names in the schedule.  Raises AssemblerError for a kernel in which ptxas waits after
    each wgmma (C7510 to C7516 and C76xx in the log) or spills registers.
    """
    if not has_wgmma(text):
        return
    resources = parse_resources(log)
    for line in log.splitlines():
        if m := _SERIALISED.search(line):
            quoted = frozenset(_QUOTED.findall(line))
            symbol = next((r.kernel for r in resources if r.kernel in quoted), "")
            reason = f"ptxas serialises wgmma instructions ({m[1]}: {line.strip()})"
            raise AssemblerError(reason, kernel=kernels.get(symbol, symbol))
    for r in resources:
        if r.spill_stores and "wgmma_" in text[_defined(text, r.kernel) :].partition("\n}\n")[0]:
            spilled = f"{r.registers} registers, {r.spill_stores} bytes spilled"
            reason = f"ptxas has too few registers for the wgmma instructions ({spilled})"
            raise AssemblerError(reason, kernel=kernels.get(r.kernel, r.kernel))


def has_wgmma(text: str) -> bool:
    """Whether ``text`` has wgmma instructions, the only ones that ptxas may serialise without an error."""
    return "wgmma.mma_async" in text


def _defined(text: str, symbol: str) -> int:
    """The position of the kernel ``symbol`` in ``text``; the end of ``text`` if it is absent."""
    found = re.search(rf"\b{symbol}\(", text)
    return found.start() if found else len(text)


def version() -> tuple[int, int]:
    """The version of NVRTC.  Raises MissingToolError without NVRTC."""
    return _library().version()


def _library() -> NvrtcLibrary:
    try:
        return nvrtc_library()
    except OSError as error:
        raise MissingToolError("NVRTC", f"not available: {error}; install the package nvidia-cuda-nvrtc") from error


def _checked(nvrtc: NvrtcLibrary, status: int, made: _Made) -> _Made:
    if status != SUCCESS:
        raise ToolchainError("NVRTC", nvrtc.status_name(status))
    return made


def _failure(nvrtc: NvrtcLibrary, status: int, arch: str, log: str) -> ToolchainError:
    if status == INVALID_OPTION:
        return MissingToolError("NVRTC", f"version {'.'.join(map(str, nvrtc.version()))} does not support {arch}", log)
    return ToolchainError("NVRTC", f"the text does not compile for {arch} ({nvrtc.status_name(status)})", log)


def include_paths() -> tuple[str, ...]:
    """The folder of the CUDA headers; empty without one."""
    found = [p for p in _candidates() if (p / "cuda_fp16.h").is_file()]
    return tuple(str(p) for p in found[:1])


def _candidates() -> Iterator[Path]:
    for root in wheels():
        yield from sorted(root.glob("*/include"), reverse=True)
    yield from (toolkit / "include" for toolkit in cuda_toolkits())


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SERIALISED = re.compile(r"\((C751[0-6]|C76\d\d)\)")  # C7517 to C7519: a fence was added, nothing waits
_QUOTED = re.compile(r"'(\w+)'")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_resources(log: str) -> tuple[Resources, ...]:
    """The report of ``ptxas -v`` for each kernel in the order of the log."""
    out: list[Resources] = []
    kernel, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if m := _ENTRY.search(line):
            kernel, stack = m[1], (0, 0, 0)
        elif m := _STACK.search(line):
            stack = (int(m[1]), int(m[2]), int(m[3]))
        elif kernel and (m := _USED.search(line)):
            shared = _SHARED.search(line)
            out.append(Resources(kernel, int(m[1]), *stack, int(shared[1]) if shared else 0))
            kernel = ""
    return tuple(out)
