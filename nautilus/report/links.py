"""Which lines of the texts of all stages belong to which statement of the spec.

The printed text of a module parses to an equal module whose nodes have places in that text, so both modules are
traversed together: the one says the line, the other the place in the spec.  In CUDA C++ comments mark the statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nautilus.core.records import dataclass
from nautilus.cuda.text.statements import Statements
from nautilus.ma_tile.ir.ops import walk_ops as memory_ops
from nautilus.passes.loading import load
from nautilus.passes.pipelines import CUDA, MA_TILE, SCALAR, SPEC, STAGES, VR_TILE
from nautilus.scalar.ir import statements
from nautilus.vr_tile.ir import walk_ops as tile_ops


@dataclass(frozen=True, slots=True)
class Text:
    """The text of one stage. ``owners``: for each line the number of its statement; -1 for none."""

    stage: str
    lines: tuple[str, ...]
    owners: tuple[int, ...]


def linked(modules: dict[str, Any]) -> tuple[Text, ...]:
    """The text of every stage in ``modules``, which begin with a Spec."""
    spec = modules[SPEC.name]
    marks = Statements.of(spec)
    out = []
    for stage in STAGES:
        if stage.name not in modules:
            continue
        if stage is SPEC:
            source = spec.definitions[0].span.source if spec.definitions else None
            lines = [] if source is None else source.text.rstrip("\n").split("\n")
        else:
            lines = str(load(stage.format)(modules[stage.name])).rstrip("\n").split("\n")
        owners = [-1] * len(lines)
        for line, owner in _places(stage.name, modules[stage.name], "\n".join(lines), marks):
            if 0 < line <= len(lines):
                owners[line - 1] = owner
        out.append(Text(stage.name, tuple(lines), tuple(owners)))
    return tuple(out)


def _places(stage: str, module: Any, text: str, marks: Statements) -> Iterator[tuple[int, int]]:
    """(line, number of the statement) for the lines that have one."""
    number = {d.name: n for n, d in enumerate(marks.all)}
    if stage == SPEC.name:
        for n, d in enumerate(marks.all):
            yield from ((line, n) for line in range(d.span.line, d.span.end_line + 1))
    elif stage == CUDA.name:
        yield from _marked(text, {f"// {marks.comment(d)}": n for n, d in enumerate(marks.all)})
    else:
        parsed = load(next(s for s in STAGES if s.name == stage).parse)(text, stage)
        for own, shown in zip(_nodes(stage, module), _nodes(stage, parsed), strict=True):
            owner = marks.at(own.span)
            if owner is not None:
                yield shown.span.line, number[owner.name]


def _marked(text: str, comments: dict[str, int]) -> Iterator[tuple[int, int]]:
    owner = -1
    for n, line in enumerate(text.split("\n"), start=1):
        owner = comments.get(line.strip(), owner) if line.startswith(" ") else -1
        if owner >= 0:
            yield n, owner


def _nodes(stage: str, module: Any) -> Iterator[Any]:
    for kernel in module.kernels:
        if stage == SCALAR.name:
            yield from (s for _, s in statements(kernel.body))
        elif stage == VR_TILE.name:
            yield from tile_ops(kernel.body)
        elif stage == MA_TILE.name:
            yield from memory_ops(kernel.body)
