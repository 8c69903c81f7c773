"""The kinds of output, by their suffixes. This module imports only the standard library, so that it loads fast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: IR -> its stage; all other outputs need the last stage
UNTIL: Mapping[str, str] = {"scalar": "scalar", "vr": "vr-tile", "ma": "ma-tile"}
LIBRARIES = ("so", "o")
SEVERAL = ("h", *LIBRARIES)  # several architectures in one file
FORMS = ("cu", "h", "so", "o", "ptx", "cubin", "manifest", "json", *UNTIL)
MANIFEST = ".manifest.json"


def form_of(output: str | None) -> str:
    """The form that the suffix of ``output`` selects; CUDA C++ for a pipe.  Raises ValueError for another suffix."""
    if output in (None, "-"):
        return "cu"
    target = Path(output)
    suffix = target.suffix.removeprefix(".")
    if not suffix and target.exists() and not target.is_file() and not target.is_dir():
        return "cu"  # /dev/null, a pipe
    if target.name.endswith(MANIFEST):
        return "manifest"
    if suffix not in FORMS:
        raise ValueError(f"the suffix of {output!r} selects no output format; use --emit")
    return suffix
