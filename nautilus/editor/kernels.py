"""Which kernels compute a definition, by the rules of the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nautilus.core.errors import NautilusError
from nautilus.cuda.text.statements import Statements
from nautilus.driver import Request, compile_file
from nautilus.editor.document import Document
from nautilus.passes.pipelines import SCALAR, SPEC
from nautilus.scalar.ir import statements
from nautilus.targets.records import DEFAULT_TARGET


def kernels(document: Document, arch: str = DEFAULT_TARGET) -> Mapping[str, tuple[str, ...]]:
    """The kernels with statements of each definition; empty where the spec is not valid or has no plan.

    Planning takes some tenths of a second, once for each text.
    """
    if document.analysis.spec is None:
        return {}
    return _kernels(replace(document, name=Path(document.name).name), arch)


@lru_cache(maxsize=4)
def _kernels(document: Document, arch: str) -> Mapping[str, tuple[str, ...]]:
    path = document.folder / document.name
    try:
        made = compile_file(Request(path, arch, dict(document.dims), until=SCALAR.name, text=document.text))
    except NautilusError:
        return {}
    marks = Statements.of(made.modules[SPEC.name])
    found: dict[str, dict[str, None]] = {}
    for kernel in made.modules[SCALAR.name].kernels:
        for _, statement in statements(kernel.body):
            if (owner := marks.at(statement.span)) is not None:
                found.setdefault(owner.name, {})[kernel.name] = None
    return {name: tuple(own) for name, own in found.items()}
