"""The errors of approximations by the magnitude of their results, and where code has them.

The logarithm of the special-function unit has an absolute error close to 1, so its relative error is largest where the
result is small and no polynomial computes it.  Large results have a few units of error.

``ma_tile.passes.finalise.approximate`` uses it only where a reduction or a rounding to at most 16 bits hides its error.
Elsewhere the functions of the library have theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from nautilus.core.expr.nodes import Expr, Load, Op, Reduce, children, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import Array
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.frontend.spec import Spec

#: Functions whose approximations are hidden, and the ulps of the product by which one of them becomes another one.
HIDDEN: Final[Mapping[str, float]] = {"log": 1.0, "log2": 0.0, "log1p": 0.0}
_SHORT: Final = 16


def smaller(op: str, x: Array) -> Array | None:
    """The errors of the approximation of ``op`` at the results ``x`` as parts of the largest; None: all are alike."""
    found = max(FUNCTIONS[op].approximations, key=lambda a: a.ulps, default=None)
    if found is None or not (found.absolute or found.at_one):
        return None
    if found.at_one:
        return np.asarray(1.0 - (1.0 - found.at_one / found.ulps) * np.clip(x, 0.0, 1.0))
    with np.errstate(all="ignore"):
        ulps = np.maximum(found.absolute / np.abs(x), found.large)
    return np.where(np.isfinite(ulps), np.minimum(ulps, found.ulps) / found.ulps, 1.0)


@by_identity(8)
def shown(spec: Spec) -> frozenset[str]:
    """The definitions of ``spec`` whose values reach no reduction, and no rounding to at most 16 bits."""
    hidden = {d.name for d in spec.definitions if d.recurrence is not None or _is_short(d.stored)}
    read = {d.name: [(e.buffer, below) for e, below in nodes(d.expr) if isinstance(e, Load)] for d in spec.definitions}
    for d in reversed(spec.definitions):
        hidden |= {name for name, below in read[d.name] if below or d.name in hidden}
    return frozenset(d.name for d in spec.definitions) - hidden


@by_identity(1 << 8)
def exact_nodes(e: Expr) -> frozenset[int]:
    """By identity, the logarithms of ``e``, a definition that is :func:`shown`, that nothing in it hides."""
    if not any(isinstance(n, Op) and n.op in HIDDEN for n in walk(e)):
        return frozenset()
    found = {id(n) for n, below in nodes(e) if not below and isinstance(n, Op) and n.op in HIDDEN}
    return frozenset(found - {id(n) for n, below in nodes(e) if below})


def nodes(e: Expr) -> Iterator[tuple[Expr, bool]]:
    """The nodes of ``e``, each with whether it is below a reduction or a rounding to at most 16 bits."""
    waiting, seen = [(e, False)], set[tuple[int, bool]]()
    while waiting:
        node, below = waiting.pop()
        if (id(node), below) not in seen:
            seen.add((id(node), below))
            yield node, below
            short = isinstance(node, Op) and node.op in ("cast", "narrow") and _is_short(node.dtype)
            below = below or short or isinstance(node, Reduce)
            waiting += [(x, below) for x in children(node)]


def _is_short(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits <= _SHORT
