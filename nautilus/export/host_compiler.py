"""The C++ compiler of the host, which makes libraries and object files."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nautilus.core.errors import ToolchainError

_KNOWN = ("c++", "g++", "clang++")
_OPTIONS = (
    "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
)  # fmt: skip
_LIBRARY = ("-shared", "-Wl,--build-id=none", "-ldl", "-lpthread")
_SECONDS = 600.0


def find(named: str = "") -> list[str]:
    """The command of the compiler: ``named``, else CXX of the environment, else a known one on PATH.

    Raises ToolchainError that says what to install.
    """
    wanted = shlex.split(named or os.environ.get("CXX", ""))
    for name in [wanted[0]] if wanted else _KNOWN:
        found = shutil.which(name)
        if found is not None:
            return [found, *wanted[1:]]
    tried = f"{wanted[0]!r} is not found" if wanted else f"none of {', '.join(_KNOWN)} is on PATH"
    hint = (
        "install one (apt install g++, dnf install gcc-c++, conda install gxx), or name it with --host-compiler or CXX"
    )
    raise ToolchainError("host compiler", f"{tried}; a library needs a C++ compiler: {hint}")


def compile_library(text: str, form: str, named: str = "", options: Sequence[str] = ()) -> bytes:
    """``text`` as a shared library (``form`` so) or an object file (o); equal texts give equal bytes.

    ``options``: more options of the compiler.

    Raises ToolchainError, with the compiler's messages where it refuses the text.
    """
    command = find(named)
    way = _LIBRARY if form == "so" else ("-c",)
    whole = [*command, *_OPTIONS, "-x", "c++", "-", "-x", "none", *way, *options]
    with tempfile.TemporaryDirectory(prefix="nautilusc-") as folder:
        return _made(whole, Path(folder) / f"kernel.{form}", text, "refuses the host part")


def link(objects: Sequence[bytes], form: str, named: str = "", options: Sequence[str] = ()) -> bytes:
    """One shared library (``form`` so) or object file (o) with the contents of several object files.

    ``options``: more options of the linker.

    Raises ToolchainError, with the messages of the linker where it refuses them.
    """
    way = _LIBRARY if form == "so" else ("-r", "-nostdlib")
    with tempfile.TemporaryDirectory(prefix="nautilusc-") as folder:
        files = [Path(folder) / f"part{n}.o" for n in range(len(objects))]
        for file, data in zip(files, objects, strict=True):
            file.write_bytes(data)
        whole = [*find(named), *map(str, files), *way, *options]
        return _made(whole, Path(folder) / f"whole.{form}", "", "cannot link the parts")


def _made(command: Sequence[str], target: Path, text: str, refusal: str) -> bytes:
    """The content of ``target``, which ``command`` makes from ``text`` on its standard input."""
    whole = [*command, "-o", str(target)]
    try:
        done = subprocess.run(
            whole, input=text, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError("host compiler", f"{command[0]} does not run: {error}") from error
    if done.returncode:
        raise ToolchainError("host compiler", f"{command[0]} {refusal}", done.stderr)
    return target.read_bytes()
