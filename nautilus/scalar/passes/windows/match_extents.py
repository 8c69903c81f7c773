"""``match-extents``: reductions that read one tensor get loops of the same extents.

Differences of neighbours along two axes leave out another row or column each, so that their sums have no loop in
common and each reads the whole tensor, as in the total variation of an image::

    V sum= abs(X[h + 1, w] - X[h, w])       h < H - 1, w < W
    U sum= abs(X[h, w + 1] - X[h, w])       h < H,     w < W - 1

Both have the same loops where the shorter ones get the missing elements, without terms::

    V sum= .. where h < H - 1               h < H, w < W
    U sum= .. where w < W - 1               h < H, w < W

The reductions have no other axes, and read the tensor at its own positions, one axis for each dimension.  No axis
gets more than one part in :data:`MORE` of new elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Reduce, Var
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, put_defs

MORE = 16


@dataclass(frozen=True, slots=True)
class MatchExtents(CertifyingPass[Program]):
    """Extend the loops of whole reductions over a tensor to those of the others over it."""

    name = "match-extents"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with such loops, and a certificate for each reduction that changed."""
        defs = find_defs(program)
        read = {d.name: _tensors(d) for d in defs.values() if d.is_reduction and not d.par and d.at is None}
        certificates: list[Certificate] = []
        for name, tensors in read.items():
            d = defs[name]
            longer = _longer(d, tensors, [(defs[x], read[x]) for x in read if x != name])
            if longer:
                new = _extended(d, longer)
                certificates.append(_certificate(d, new))
                program = put_defs(program, name, (new,))
        return program, tuple(certificates)


def _tensors(d: Def) -> Mapping[str, tuple[str, ...]]:
    """The tensors that ``d`` reads at its own position, each with the reduced axes in the order of its dimensions."""
    reduced = {a.name for a in d.red}
    plain = ((ld.buffer, tuple(e.name for e in ld.index if isinstance(e, Var))) for ld in d.reads())
    return {buffer: axes for buffer, axes in plain if len(axes) == len(reduced) and {*axes} == reduced}


def _longer(
    d: Def, tensors: Mapping[str, tuple[str, ...]], others: list[tuple[Def, Mapping[str, tuple[str, ...]]]]
) -> Mapping[str, int]:
    """The axes of ``d`` to extend, with their new extents; empty where an axis is too short for one of ``others``."""
    found: dict[str, int] = {}
    extents = {a.name: size(a) for a in d.red}
    for other, theirs in others:
        lengths = {a.name: size(a) for a in other.red}
        for buffer in tensors.keys() & theirs.keys():
            for mine, its in zip(tensors[buffer], theirs[buffer], strict=True):
                n, most = extents[mine], lengths[its]
                if n is None or most is None or max(n, most) > min(n, most) * (MORE + 1) // MORE:
                    return {}
                if most > found.get(mine, n):
                    found[mine] = most
    return found


def _extended(d: Def, longer: Mapping[str, int]) -> Def:
    """``d`` with axes that have the extents ``longer``, whose new elements have no terms."""
    inside = (calc("lt", Var(a.name), size(a) or 0) for a in d.red if a.name in longer)
    red: tuple[Axis, ...] = tuple(replace(a, extent=longer.get(a.name, a.extent)) for a in d.red)
    return replace(d, red=red, guard=conjunction((*inside, d.guard)))


def _certificate(before: Def, after: Def) -> Certificate:
    proof = "elements beyond the end of a loop have no terms"
    return Certificate("match-extents", before.name, _whole(before), _whole(after), (), (), (), proof, before.span)


def _whole(d: Def) -> Reduce:
    return Reduce(d.op or "", d.red, d.guard, d.value, d.value.dtype, d.span)
