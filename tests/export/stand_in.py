"""The stand-in for libcuda (``driver.cpp``), compiled once."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from nautilus.runtime.nvrtc import include_paths

GXX = shutil.which("g++")


def stand_in_for_libcuda(folder: Path) -> ctypes.CDLL:
    """The library, compiled in ``folder``.  Skips without a C++ compiler and the headers of CUDA."""
    if GXX is None or not include_paths():
        pytest.skip("needs g++ and the headers of CUDA")
    target = folder / "libcuda.so"
    source = Path(__file__).parent / "driver.cpp"
    subprocess.run([GXX, "-shared", "-fPIC", f"-I{include_paths()[0]}", source, "-o", target], check=True)
    return ctypes.CDLL(str(target))
