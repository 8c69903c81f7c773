"""The makefile rule of ``-MD``: which files an output depends on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from nautilus.frontend.syntax.load import SUFFIX, read_path, read_text


def read_files(spec: Path, text: str | None) -> list[str]:
    """The input, if it is a file and not ``text``, and for a spec the files that it includes."""
    if spec.suffix != SUFFIX:
        return [str(spec)] if text is None else []
    return (read_path(spec) if text is None else read_text(text, str(spec), spec.parent)).files


def rule(target: str, files: Iterable[str]) -> str:
    """``target: file file``, and an empty rule for each included file, so that one may be removed."""
    names = [_escaped(name) for name in files]
    lines = [f"{_escaped(target)}: {' '.join(names)}".rstrip(), *(f"{name}:" for name in names[1:])]
    return "\n".join(lines) + "\n"


def _escaped(name: str) -> str:
    return re.sub(r"([\\ #:])", r"\\\1", name).replace("$", "$$")
