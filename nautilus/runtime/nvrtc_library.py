"""NVRTC through ctypes: where its library lies, and the functions that a compilation calls (NVRTC, "API").

The library comes as a wheel; without one, that of a CUDA toolkit is taken.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import lru_cache
from pathlib import Path

from nautilus.runtime.toolkits import cuda_toolkits, wheels

SUCCESS, INVALID_OPTION = 0, 5
_MAJORS = (13, 12)


class NvrtcLibrary:
    """The functions of NVRTC, with statuses as numbers."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self._library, self.path = library, path
        library.nvrtcGetErrorString.restype = c_char_p

    @property
    def build(self) -> tuple[str, int]:
        """What tells one build of a version from another one, on every machine: the name and the size of the file."""
        path = Path(self.path)
        return path.name, path.stat().st_size if path.is_file() else 0

    def version(self) -> tuple[int, int]:
        """The major and the minor version."""
        major, minor = c_int(), c_int()
        self._library.nvrtcVersion(byref(major), byref(minor))
        return major.value, minor.value

    def status_name(self, status: int) -> str:
        """The name of ``status``, such as NVRTC_ERROR_COMPILATION."""
        found: bytes = self._library.nvrtcGetErrorString(c_int(status))
        return found.decode()

    def create(self, text: str, name: str) -> tuple[int, c_void_p]:
        """The status, and a program of ``text`` for :meth:`destroy`."""
        program = c_void_p()
        given = (c_char_p(text.encode()), c_char_p(name.encode()), c_int(0), None, None)
        return self._library.nvrtcCreateProgram(byref(program), *given), program

    def compile(self, program: c_void_p, options: list[str]) -> int:
        """The status of a compilation."""
        given = (c_char_p * len(options))(*(o.encode() for o in options))
        status: int = self._library.nvrtcCompileProgram(program, c_int(len(options)), given)
        return status

    def result(self, program: c_void_p, what: str) -> tuple[int, bytes]:
        """The status and the bytes of ``what``: CUBIN, PTX or ProgramLog."""
        size = c_size_t()
        status = getattr(self._library, f"nvrtcGet{what}Size")(program, byref(size))
        if status != SUCCESS or size.value <= 1:
            return status, b""
        room = ctypes.create_string_buffer(size.value)
        return getattr(self._library, f"nvrtcGet{what}")(program, room), room.raw

    def destroy(self, program: c_void_p) -> None:
        """Free ``program``."""
        self._library.nvrtcDestroyProgram(byref(program))


@lru_cache(maxsize=1)
def nvrtc_library() -> NvrtcLibrary:
    """The library of the newest major version.  Raises OSError where there is none."""
    problem: OSError | None = None
    for path in _candidates():
        try:
            return NvrtcLibrary(ctypes.CDLL(path), path)
        except OSError as error:
            problem = problem or error
    raise problem or OSError("libnvrtc is not found")


def _candidates() -> Iterator[str]:
    folders = [lib for root in wheels() for lib in root.glob("*/lib")]
    for major in _MAJORS:
        yield from (str(p) for lib in folders if (p := lib / f"libnvrtc.so.{major}").is_file())
    for major in _MAJORS:
        yield f"libnvrtc.so.{major}"
    for toolkit in cuda_toolkits():
        yield str(toolkit / "lib64" / "libnvrtc.so")
