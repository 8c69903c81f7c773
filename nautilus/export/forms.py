"""The kinds of output, by their suffixes. This module imports only the standard library, so that it loads fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nautilus.targets.records import version

#: IR -> its stage; all other outputs need the last stage
UNTIL: Mapping[str, str] = {"scalar": "scalar", "vr": "vr-tile", "ma": "ma-tile"}
LIBRARIES = ("so", "o")
SEVERAL = ("h", "torch", "tvm-ffi", "jax", *LIBRARIES)  # several architectures in one file
BUILT = ("cubin", "manifest", "torch", "tvm-ffi", "jax", *LIBRARIES)  # made from machine code
HOSTED = ("torch", "tvm-ffi", "jax", *LIBRARIES)  # made by the C++ compiler of the host
#: form -> the packages whose headers it is compiled with
PACKAGES: Mapping[str, tuple[str, ...]] = {"tvm-ffi": ("apache-tvm-ffi",), "jax": ("jaxlib",)}
CHOOSING = ("cu", "h", *BUILT)  # forms whose launcher chooses a variant; the others hold one schedule
FORMS = ("cu", "h", "so", "o", "torch", "tvm-ffi", "jax", "ptx", "cubin", "manifest", "json", *UNTIL)
TEXTS = ("cu", "ptx", "json", *UNTIL)  # forms that the compiler itself prints
UNCOMMENTED = ("cubin", "manifest", "ptx")  # forms that hold no comment of the text
MANIFEST = ".manifest.json"


def form_of(output: str | None) -> str:
    """The form that the suffix of ``output`` selects; CUDA C++ for a pipe.  Raises ValueError for another suffix."""
    if output in (None, "-"):
        return "cu"
    target = Path(output)
    suffix = target.suffix.removeprefix(".")
    if not suffix and target.exists() and not target.is_file() and not target.is_dir():
        return "cu"  # /dev/null, a pipe
    if suffix == "py":
        return "torch"
    if target.name.endswith(MANIFEST):
        return "manifest"
    if suffix not in FORMS:
        raise ValueError(f"the suffix of {output!r} selects no output format; use --emit")
    return suffix


def ordered_archs(archs: Sequence[str]) -> list[str]:
    """``archs`` once each, those that run on one version only first, and later versions before earlier ones."""
    return sorted(dict.fromkeys(archs), key=lambda arch: (not arch.endswith("a"), -version(arch)))
