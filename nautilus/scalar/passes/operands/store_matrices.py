"""``store-matrices``: operands whose contracted axes stand in different orders become matrices in memory.

``sum[i, j, k](X[i, a, j, k] * Y[k, j, b, i])`` has no view in which both tensors are matrices: nothing but a copy gives
them one contracted axis.  A loop for each axis would have steps as short as the innermost one.  Here one operand gets
the order of the other one, or both get an order of their own, with the contracted axes last::

    Y_right[b, i, j, k] = Y[k, j, b, i]   ;   Z[a, b] sum= X[i, a, j, k] * Y_right[b, i, j, k]

Then ``collapse-axes`` and ``flatten-contractions`` make one loop of them, and axes of rows, or of columns, that are
side by side in the result are one axis too.  This is the plan of tensor contraction libraries (transpose, transpose,
GEMM; Springer and Bientinesi, 2018).

The candidates are each operand alone, and both.  The one that stores the fewest elements is taken, if a product by
warps whose loop has an axis for each contracted one is predicted to take longer than the stores and the product.

The pass applies to products of elements of at most 32 bits in sums without a condition.  One operand at least is a
tensor that is read at axes of the product, each by itself, and is converted to types that hold all of its values, or
once.  The other one may be computed, such as the product of two tensors in a bilinear form,
``sum[i, j](x[b, i] * y[b, j] * W[o, i, j])``, or read at other positions; it is then stored.  The stores do not round a
second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars
from nautilus.core.expr.products import strip_lossless_conversions
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.axes.collapse_axes import CollapseAxes
from nautilus.scalar.passes.axes.flatten_contractions import contracted
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets import matrix_rates
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET


@dataclass(frozen=True, slots=True)
class StoreMatrices:
    """Store operands as matrices.  ``arch``: the target, whose rates decide."""

    arch: str = DEFAULT_TARGET

    name = "store-matrices"

    def apply(self, program: Program) -> Program:
        """The program with one or two more definitions for each such product."""
        live = Dead().apply(program)
        for name in find_defs(live):
            d = find_defs(live)[name]
            found = _cheapest(live, d)
            if found is not None and self._is_faster(d, found):
                program = live = found.program
        return program

    def _is_faster(self, d: Def, found: Candidate) -> bool:
        product = dense_product(d)
        assert product is not None
        rows, columns = (_volume([a for a in d.par if a.name in x]) for x in (product.rows, product.columns))
        sizes = (_volume(d.par) // (rows * columns), rows, columns, _volume(d.red))
        if prod(sizes) < matrix_rates.LEAST:
            return False
        wide, shortest = _is_wide(d), min(_extent(a) for a in d.red)
        multiplied = matrix_rates.seconds(wide, sizes, machine(self.arch).multiprocessors)
        stored = matrix_rates.store_seconds(found.bytes, found.kernels)
        by_warps = multiplied / matrix_rates.relative_to_warps(wide, shortest)
        return multiplied + stored <= matrix_rates.MATRICES_SHARE * by_warps


@dataclass(frozen=True, slots=True)
class Candidate:
    """``program`` with this many more ``kernels``, which store ``bytes``."""

    program: Program
    bytes: int
    kernels: int


def _cheapest(program: Program, d: Def) -> Candidate | None:
    """The program that stores the fewest bytes for one loop of ``d``; None where it has one, or nothing gives it one.

    None for a definition that is no such product, too.
    """
    if len(d.red) < 2 or d.guard is not None or dense_product(d) is None or contracted(program, d):
        return None
    factors = _factors(d)
    return None if factors is None else min(_candidates(program, d, factors), key=lambda c: c.bytes, default=None)


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand, as an expression of its compute type, and the type of its elements.

    ``view``: the tensor, if the operand is one that is read at axes of the product, each by itself.
    """

    value: Expr
    dtype: DType
    view: Load | None = None

    @property
    def names(self) -> frozenset[str]:
        """The axes of the operand."""
        return free_vars(self.value)


def _factors(d: Def) -> tuple[Factor, Factor] | None:
    """Both operands of the product ``d``; None where one has more than 32 bits, or both are computed."""
    assert isinstance(d.value, Op)
    found = [_factor(e) for e in d.value.args]
    left, right = found
    if left is None or right is None or (left.view is None and right.view is None):
        return None
    return left, right


def _factor(e: Expr) -> Factor | None:
    inner = strip_lossless_conversions(e.args[0] if isinstance(e, Op) and e.op == "cast" else e)
    match e:
        case Op(op="cast", args=(Op(op="narrow", dtype=dtype),)):
            return Factor(e, dtype)
        case Op(op="cast", args=(Load() | Op(op="cast"),)) | Load() if isinstance(inner, Load):
            names = [x.name for x in inner.index if isinstance(x, Var)]
            plain = len(set(names)) == len(inner.index)
            value = inner if inner.dtype is inner.dtype.compute else Op("cast", (inner,), inner.dtype.compute)
            return Factor(value, inner.dtype, inner if plain else None) if inner.dtype.bits <= 32 else None
        case Op(op=op, dtype=DType.F32) if op != "cast":
            return Factor(e, DType.F32)
    return None


def _candidates(program: Program, d: Def, factors: tuple[Factor, Factor]) -> Iterator[Candidate]:
    """Every choice of stored operands after which ``d`` has one loop."""
    computed = {n for n in (0, 1) if factors[n].view is None}
    for sides in ((0,), (1,), (0, 1)):
        if not computed <= {*sides}:
            continue
        deep = _in_order(d, factors, sides)
        temps = [_temp(program, d, n, factors[n], deep) for n in sides]
        given, new = program, d
        for n, temp in zip(sides, temps, strict=True):
            new = _reading(new, n, temp)
            given = replace(given, buffers=(*given.buffers, replace(temp.buffer, space=Space.INPUT)))
        names = dict.fromkeys(ld.buffer for t in temps for ld in t.reads())
        sources = tuple(program.buffer(n) for n in names)
        given = put_defs(given, d.name, (new,))
        given = CollapseAxes().apply(_with(given, *(replace(b, space=Space.OUTPUT) for b in sources)))  # not dead
        new = find_defs(given)[d.name]
        apart = all(given.buffer(b.name).shape == b.shape for b in sources)
        given = _with(given, *sources)
        if apart and (len(new.red) == 1 or contracted(given, new)):
            made = put_defs(_without(given, temps), d.name, (*(_placed(t, given.buffer(t.name)) for t in temps), new))
            yield Candidate(made, sum(_volume(t.par) * t.buffer.dtype.bytes for t in temps), len(sides))


def _in_order(d: Def, factors: tuple[Factor, Factor], sides: tuple[int, ...]) -> tuple[Axis, ...]:
    """The contracted axes in the order of the operand that is not stored, or of the larger tensor."""
    views = [f for n, f in enumerate(factors) if f.view is not None and (len(sides) == 2 or n not in sides)]
    first = max(views, key=lambda f: _volume([a for a in d.axes if a.name in f.names])).view
    assert first is not None
    index = first.index
    return tuple(sorted(d.red, key=lambda a: index.index(Var(a.name))))


def _temp(program: Program, d: Def, side: int, factor: Factor, deep: Sequence[Axis]) -> Def:
    """Factor ``side`` of ``d`` as a temp whose last axes are ``deep``."""
    axes = (*(a for a in d.par if a.name in factor.names), *deep)
    name = fresh_name(program, f"{d.name}_{('left', 'right')[side]}")
    span = factor.value.span
    buffer = Buffer(name, factor.dtype, tuple(a.extent for a in axes), Space.TEMP, span)
    return Def(name, buffer, axes, (), None, factor.value, None, span)


def _reading(d: Def, side: int, temp: Def) -> Def:
    """``d`` with factor ``side`` from ``temp``."""
    assert isinstance(d.value, Op)
    factors = list(d.value.args)
    load = Load(temp.name, temp.index, temp.buffer.dtype, temp.span)
    dtype = factors[side].dtype
    factors[side] = load if load.dtype is dtype else Op("cast", (load,), dtype, temp.span)
    return replace(d, value=replace(d.value, args=tuple(factors)))


def _with(program: Program, *buffers: Buffer) -> Program:
    """``program`` with ``buffers`` in the place of those of their names."""
    new = {b.name: b for b in buffers}
    return replace(program, buffers=tuple(new.get(b.name, b) for b in program.buffers))


def _without(program: Program, temps: Sequence[Def]) -> Program:
    names = {t.name for t in temps}
    return replace(program, buffers=tuple(b for b in program.buffers if b.name not in names))


def _placed(temp: Def, view: Buffer) -> Def:
    """``temp`` in memory as ``view``, in which axes that are side by side are one."""
    left, at = list(temp.par), list[Expr]()
    for n in view.shape:
        a = left.pop(0)
        place: Expr = Var(a.name)
        extent = _extent(a)
        while extent != n:
            a = left.pop(0)
            place, extent = calc("add", calc("mul", place, _extent(a)), Var(a.name)), extent * _extent(a)
        at.append(place)
    buffer = replace(temp.buffer, shape=view.shape)
    return replace(temp, buffer=buffer, at=None if all(isinstance(e, Var) for e in at) else tuple(at))


def _is_wide(d: Def) -> bool:
    """Whether an operand has 32 bits."""
    factors = _factors(d)
    return factors is not None and any(f.dtype.bits > 16 for f in factors)


def _extent(a: Axis) -> int:
    return size(a) or 1


def _volume(axes: Sequence[Axis]) -> int:
    return prod(map(_extent, axes))
