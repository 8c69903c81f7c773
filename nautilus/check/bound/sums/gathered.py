"""Large inputs that are read at computed positions, which have fewer elements in an evaluation.

Such an input is as large as the tables of the spec are, while few of its elements are read at sampled elements of the
outputs.  It is shortened along the dimensions of its computed positions, which count from 0 again at the end: elements
at different positions remain different ones, as long as there are fewer of them than the shortened input has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Final

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Load, rewrite, walk
from nautilus.frontend.spec import Spec, Tensor

_GATHERED: Final = 1 << 17  # elements of an input, where it is read at computed positions only
_LEAST: Final = 16  # positions along a dimension


def shortened(
    spec: Spec, ranges: Mapping[str, tuple[int, int]], rows: Collection[str] = ()
) -> tuple[Spec, dict[str, tuple[int, int]]]:  # fmt: skip
    """``spec`` with large inputs shortened along dimensions of gathers, and the ranges of the positions in them.

    The inputs ``rows``, whose values are given, keep their shapes.
    """
    known, reads = dict(ranges), _reads(e for d in spec.definitions for e in walk(d.expr))
    lengths: dict[tuple[str, int], int] = {}
    for t in spec.inputs:
        for p, length in _lengths(t, reads.get(t.name, ())).items() if t.name not in rows else ():
            lengths[t.name, p] = length
            names = {x.buffer for e in reads[t.name] for x in walk(e.index[p]) if isinstance(x, Load)}
            known |= {x: (0, min(known[x][1], length - 1)) for x in names if x in known}
    if not lengths:
        return spec, known

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or all((e.buffer, p) not in lengths for p in range(len(e.index))):
            return None
        return replace(e, index=tuple(position(e.buffer, p, i) for p, i in enumerate(e.index)))

    def position(name: str, p: int, index: Expr) -> Expr:
        if (name, p) not in lengths or (isinstance(index, Load) and index.buffer in known):
            return index
        return calc("mod", index, Const(lengths[name, p], index.dtype))

    def shape(t: Tensor) -> Tensor:
        if all((t.name, p) not in lengths for p in range(len(t.shape))):
            return t
        return replace(t, shape=tuple(lengths.get((t.name, p), n) for p, n in enumerate(t.shape)), strides=None)

    definitions = tuple(replace(d, expr=rewrite(d.expr, rule)) for d in spec.definitions)
    return replace(spec, inputs=tuple(map(shape, spec.inputs)), definitions=definitions), known


def sizes(spec: Spec, nodes: Iterable[Expr]) -> dict[str, int]:
    """The elements of each input of ``spec``, which has these ``nodes``, shortened where it is large."""
    large = any(_volume(t) > _GATHERED for t in spec.inputs)
    reads = _reads(nodes) if large else {}
    return {t.name: _volume(t, _lengths(t, reads.get(t.name, ()))) for t in spec.inputs}


def _reads(nodes: Iterable[Expr]) -> dict[str, list[Load]]:
    found: dict[str, list[Load]] = {}
    for e in nodes:
        if isinstance(e, Load):
            found.setdefault(e.buffer, []).append(e)
    return found


def _lengths(t: Tensor, reads: Collection[Load]) -> dict[int, int]:
    """The shorter lengths of ``t``, which has these ``reads``, by dimension."""
    found: dict[int, int] = {}
    for p, n in enumerate(t.shape):
        size = _volume(t, found)
        if not isinstance(n, int) or size <= _GATHERED:
            continue
        if all(any(isinstance(x, Load) for x in walk(e.index[p])) for e in reads):
            found[p] = min(n, max(_LEAST, n * _GATHERED // size))
    return found


def _volume(t: Tensor, lengths: Mapping[int, int] | None = None) -> int:
    known = lengths or {}
    return prod(known.get(p, n) for p, n in enumerate(t.shape) if isinstance(n, int))
