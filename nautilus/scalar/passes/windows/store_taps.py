"""``store-taps``: products of a transposed convolution with a large stride are stored, and its results add them.

The result at ``y`` adds the taps ``r`` that meet an element of the operand, which are few or none::

    Y[b, k, y] sum= X[b, c, (y - 2 * r) // 5] * F[c, k, r]  where (y - 2 * r) % 5 == 0

Its phases, of which each has its own taps, are tiles of the product (``split-residues``), and each tile writes every
fifth element of a row: parts of sectors of memory.  With more phases than taps it takes less time to store the products
of all taps at each position of the operand, from which rows of the result are made as they lie in memory::

    Y_taps[b, r, k, u] sum= X[b, c, u] * F[c, k, r]
    Y[b, k, y] sum= Y_taps[b, r, k, (y - 2 * r) // 5]  where (y - 2 * r) % 5 == 0

The condition says nothing about the axes that remain in the product, and the positions of the operand are those of the
tensor, so the second sum reads what the first one reads under its condition.  The pass applies to products of two
tensors, on targets with warpgroup MMAs, where the time of both kernels is predicted to be at most :data:`SHARE` of that
of the stores of phases (:mod:`nautilus.targets.window_rates`).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, loads, substitute
from nautilus.core.expr.products import strip_lossless_conversions
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets import part_rates
from nautilus.targets import window_rates as rates
from nautilus.targets.limits import limits
from nautilus.targets.memory_rates import LAUNCH, MEMORY
from nautilus.targets.records import DEFAULT_TARGET

SHARE = 0.6  # time with stored taps, at most, as a share of that of the stores of phases


@dataclass(frozen=True, slots=True)
class StoreTaps:
    """Store the products of taps.  ``arch``: the target."""

    arch: str = DEFAULT_TARGET

    name = "store-taps"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such product."""
        if not limits(self.arch).warpgroup:
            return program
        for d in find_defs(program).values():
            taps = strided(program, d)
            if taps is not None and _is_faster(d, taps):
                program = _stored(program, d, taps)
        return program


@dataclass(frozen=True, slots=True)
class Taps:
    """The factor ``side`` of a product is read at ``places`` that depend on ``rows`` of the result and on ``taps``.

    ``positions``: the axes of the tensor there.  ``stride``: phases along the contiguous axis of the result.
    """

    side: int
    places: tuple[int, ...]
    rows: tuple[Axis, ...]
    taps: tuple[Axis, ...]
    positions: tuple[Axis, ...]
    stride: int


def strided(program: Program, d: Def) -> Taps | None:
    """``d`` as such a product; None for any other definition."""
    if d.op != "sum" or d.at is not None or not isinstance(d.value, Op) or d.value.op != "mul":
        return None
    factors = [_tensor(e) for e in d.value.args]
    found = [(n, ld, _places(ld)) for n, ld in enumerate(factors) if ld is not None]
    chosen = [x for x in found if x[2]]
    if len(found) != len(factors) or len(chosen) != 1 or any(size(a) is None for a in d.axes):
        return None
    ((side, ld, places),) = chosen
    names = frozenset[str]().union(*(free_vars(ld.index[n]) for n in places))
    rows, taps = (tuple(a for a in axes if a.name in names) for axes in (d.par, d.red))
    left = {a.name for a in d.red} - names
    fixed = {x for n, e in enumerate(ld.index) if n not in places for x in free_vars(e)} & names
    other = factors[1 - side]
    assert other is not None
    clear = not fixed and not {a.name for a in rows} & free_vars(other)
    free = d.guard is None or not (free_vars(d.guard) & left or loads(d.guard))
    if not (rows and taps and left and clear and free):
        return None
    shape = program.buffer(ld.buffer).shape
    taken, positions = {a.name for a in d.axes}, list[Axis]()
    for n in places:
        length = shape[n]
        if not isinstance(length, int):
            return None
        positions.append(Axis(unused("u", taken | {a.name for a in positions}), length, ld.span))
    last = d.index[-1]
    strides = [_stride(ld.index[n]) for n in places if free_vars(last) & free_vars(ld.index[n])]
    return Taps(side, places, rows, taps, tuple(positions), max(strides, default=1))


def _tensor(e: Expr) -> Load | None:
    e = strip_lossless_conversions(e) if isinstance(e, Op) and e.op == "cast" else e
    return e if isinstance(e, Load) else None


def _places(ld: Load) -> tuple[int, ...]:
    return tuple(n for n, e in enumerate(ld.index) if _stride(e) > 1)


def _stride(e: Expr) -> int:
    """The number by which the position ``e`` is divided."""
    match e:
        case Op(op="floordiv", args=(_, Const(value=n))):
            return int(n)
    return 1


def _is_faster(d: Def, t: Taps) -> bool:
    """Whether stored taps are certainly faster than phases."""
    results = _volume(d.par)
    taps = results // _volume(t.rows) * _volume(t.taps) * _volume(t.positions)
    terms = _volume(d.red) // _volume(t.taps)
    traffic = (2 * taps + results) * DType.F32.bytes / MEMORY
    product = 2 * taps * terms / (part_rates.STORED * rates.WHOLE)
    return traffic + product + 2 * LAUNCH * 1e-6 <= SHARE * rates.result_seconds(d.buffer.dtype, results, t.stride)


def _volume(axes: tuple[Axis, ...]) -> int:
    return prod(size(a) or 1 for a in axes)


def _stored(program: Program, d: Def, t: Taps) -> Program:
    """``program`` with the products of taps in a temp, which ``d`` adds."""
    assert isinstance(d.value, Op)
    ld = _tensor(d.value.args[t.side])
    assert ld is not None
    place = dict(zip(t.places, t.positions, strict=True))
    inner = replace(ld, index=tuple(Var(place[n].name) if n in place else e for n, e in enumerate(ld.index)))
    factors = list(d.value.args)
    factors[t.side] = inner if factors[t.side] is ld else Op("cast", (inner,), DType.F32, ld.span)
    par = (*(a for a in d.par if a not in t.rows), *t.positions)
    first = next((n for n, a in enumerate(par) if a in d.par[1:]), 0)
    par = (*par[:first], *t.taps, *par[first:])
    name = fresh_name(program, f"{d.name}_taps")
    buffer = Buffer(name, DType.F32, tuple(a.extent for a in par), Space.TEMP, d.span)
    red = tuple(a for a in d.red if a not in t.taps)
    product = Def(name, buffer, par, red, d.op, replace(d.value, args=tuple(factors)), None, d.span)
    at = {a.name: ld.index[n] for n, a in place.items()}
    index = tuple(substitute(Var(a.name), at) for a in par)
    return put_defs(program, d.name, (product, replace(d, red=t.taps, value=Load(name, index, DType.F32, d.span))))
