"""Where the files of CUDA lie: in packages of NVIDIA, else in toolkits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path


def wheels() -> Iterator[Path]:
    """The folders of the packages of NVIDIA."""
    try:
        spec = find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    yield from map(Path, (spec.submodule_search_locations or ()) if spec is not None else ())


def cuda_toolkits() -> Iterator[Path]:
    """The folders of CUDA toolkits."""
    yield from (Path(os.environ[v]) for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v))
    yield Path("/usr/local/cuda")
