"""``store-phases``: results of products that lie between those of other products are stored apart, and then in order.

A transposed convolution with stride 4 is a product for each of four residues (``split-residues``)::

    Y[b, k, 4 * q + p] = Y_acc[b, k, p, q]

A tile has the results of one residue, of which each lies alone in its sector of memory, and every sector is written in
four parts.  Here the tile writes whole rows of a temp, and one more kernel puts the residues between each other::

    Y_phases[b, k, p, q] = Y_acc[b, k, p, q]         ;         Y[b, k, y] = Y_phases[b, k, y % 4, y // 4]

The pass applies to results of products where writing parts of sectors takes longer than storing the temp and reading
it, on targets with warpgroup MMAs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, in_compute_type
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import axis_assumptions, find_defs, fresh_name, put_defs
from nautilus.targets.limits import limits
from nautilus.targets.memory_rates import LAUNCH, MEMORY
from nautilus.targets.records import DEFAULT_TARGET

#: time of writing every n-th element, of a word of 4 bytes at least, relative to that of n times as many whole sectors
#: (the cost model for five convolutions: 1.1 to 1.8)
PARTS = 1.1
WORD = 4  # bytes
SHARE = 0.8  # time of storing and copying, at most, as a share of that


@dataclass(frozen=True, slots=True)
class StorePhases:
    """Store the results of phases.  ``arch``: the target."""

    arch: str = DEFAULT_TARGET

    name = "store-phases"

    def apply(self, program: Program) -> Program:
        """The program with one more temp for each such result."""
        if not limits(self.arch).warpgroup:
            return program
        defs = find_defs(program)
        for d in defs.values():
            phases = _phases(d) if _is_result(d, defs) else {}
            if _pays(d, phases):
                program = put_defs(program, d.name, _stored(program, d, phases))
        return program


def _is_result(d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` is stored, and is a product or made from one, element by element."""
    stored = d.buffer.space is Space.OUTPUT or d.buffer.dtype is not DType.F32
    if not stored or d.scatter is not None or d.buffer.strides is not None or d.buffer.support is not None:
        return False
    if d.is_reduction:
        return multiplies_matrices(d)
    own = tuple(Var(a.name) for a in d.par)
    made = ((defs[ld.buffer], ld.index) for ld in d.reads() if ld.buffer in defs)
    return any(multiplies_matrices(x) and (x.at == d.at or index == own) for x, index in made)


def _phases(d: Def) -> dict[int, int]:
    """The dimensions of ``d`` whose positions are those of phases, with the number of phases."""
    found, sizes = dict[int, int](), {a.name: size(a) for a in d.par}
    for n, e in enumerate(d.index):
        steps = {x: abs(linear(e).slope(x)) for x in free_vars(e) if abs(linear(e).slope(x)) > 1}
        for x, step in steps.items():
            others = prod(sizes.get(y) or 0 for y in free_vars(e) - {x})
            if others == step and isinstance(d.buffer.shape[n], int):
                found[n] = step
    if not found:
        return {}
    first, place = min(found), _place(d.index, found, d.par)
    return found if all(map(_steps_by_one, place[first : first + len(found)])) else {}


def _steps_by_one(e: Expr) -> bool:
    """Whether neighbours along an axis have neighbouring positions ``e``, maybe modulo a number."""
    form = linear(e.args[0] if isinstance(e, Op) and e.op == "mod" else e)
    return all(isinstance(a, Var) and abs(n) == 1 for a, n in form.terms.items())


def _pays(d: Def, phases: Mapping[int, int]) -> bool:
    """Whether storing the phases of the contiguous dimension takes less time than writing parts of sectors."""
    step = phases.get(len(d.index) - 1, 1)
    sizes = [size(a) for a in d.par]
    if step == 1 or None in sizes:
        return False
    elements, width = prod(n or 1 for n in sizes), d.buffer.dtype.bytes
    apart = PARTS * elements * max(width, WORD) * step / MEMORY
    return 2 * elements * width / MEMORY + LAUNCH * 1e-6 < SHARE * apart


def _stored(program: Program, d: Def, phases: Mapping[int, int]) -> tuple[Def, Def]:
    """``d`` in a temp of ``phases``, and its elements in order."""
    name = fresh_name(program, f"{d.name}_phases", [a.name for a in d.axes])
    quotients = [-(-n // phases[k]) if isinstance(n, int) and k in phases else n for k, n in enumerate(d.buffer.shape)]
    first = min(phases)
    shape = (*quotients[:first], *phases.values(), *quotients[first:])
    buffer = Buffer(name, d.buffer.dtype, shape, Space.TEMP, d.span)

    index = _place(d.index, phases, d.par)
    order = {e.name: n for n, e in enumerate(index) if isinstance(e, Var)}
    par = tuple(sorted(d.par, key=lambda a: order.get(a.name, len(order))))
    whole = index == tuple(Var(a.name) for a in par) and tuple(a.extent for a in par) == shape
    temp = replace(d, name=name, buffer=buffer, par=par, at=None if whole else index)

    axes = tuple(Axis(f"i{n}", extent, d.span) for n, extent in enumerate(d.buffer.shape))
    where = _place(tuple(Var(a.name) for a in axes), phases, axes)
    value = in_compute_type(Load(name, where, buffer.dtype, d.span))
    return temp, Def(d.name, d.buffer, axes, (), None, value, None, d.span)


def _place(index: tuple[Expr, ...], phases: Mapping[int, int], axes: tuple[Axis, ...]) -> tuple[Expr, ...]:
    """The place in the temp of the element at ``index``: phases stand before the first dimension that has some."""
    ranges, facts = axis_assumptions(axes)
    ranges = {x: (low, max(high, low + 1)) for x, (low, high) in ranges.items()}  # an axis of one stays a variable
    inside = tuple(calc("floordiv", e, phases[n]) if n in phases else e for n, e in enumerate(index))
    first, residues = min(phases), (calc("mod", index[n], p) for n, p in phases.items())
    return tuple(simplify(e, ranges, facts) for e in (*inside[:first], *residues, *inside[first:]))
