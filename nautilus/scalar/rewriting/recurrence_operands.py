"""States that products of matrices in a recurrence read rounded to 16 bits (``tile-recurrences``).

A matrix unit multiplies elements of one type.  Where a state of 32 bits, or what is computed of states, meets a matrix
of 16 bits, the recurrence gets one more tensor, its *operand*, which the products read::

    G[b, t, i] sum= cast<f32>(G_operand[b, t - 1, j]) * cast<f32>(U[j, i])
    G_operand[b, t, j] = cast<f32>(narrow<f16>(h[b, t, j]))             16 bits in memory

The contract (``grammar/README.md``, "Numbers") permits this, ``strict`` forbids it.  bf16 has the range of f32.  A
number that becomes f16 is bounded, by

* the intervals of the functions that it is the result of, as a product of ``sigmoid`` and ``tanh`` is, or
* induction over the steps: ``(1 - z) * n + z * h'`` with ``z`` in [0, 1], where ``n`` is bounded and ``h'`` is the
  element of the step before, is at most the larger one of both; ``n + q * h'`` with ``q`` below 1 is at most
  ``n / (1 - q)``.

The stated error bound has the same roundings (``check.bound.program``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import product
from math import isfinite

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, loads, rewrite, substitute
from nautilus.core.expr.products import factors, product_of
from nautilus.core.functions.intervals import magnitude
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.ranges.factor_scales import FITS_F16
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.rewriting.recurrence_reads import Steps


def half(e: Expr) -> Load | None:
    """The element of 16 bits that ``e`` is in a wider type."""
    match e:
        case Op(op="cast", args=(Load() as ld,)) if ld.dtype.is_half:
            return ld
    return None


def operand_of(steps: Steps, d: Def) -> tuple[Expr, Load] | None:
    """What the sum ``d`` of products multiplies the element of a matrix by, and that element; None if it is none."""
    kept = {a.name for a in steps.own(d)} - {a.name for a in d.red}
    parts = factors(d.value)
    matrices = [ld for f in parts if (ld := half(f)) is not None and ld.buffer not in steps.names]
    matrices = [ld for ld in matrices if free_vars(ld) & kept]
    left = [f for f in parts if half(f) not in matrices]
    if d.op != "sum" or len(matrices) != 1 or not left or any(free_vars(f) & kept for f in left):
        return None
    return product_of(left), matrices[0]


def with_operands(steps: Steps, taken: Collection[str]) -> tuple[Steps, frozenset[str]]:
    """``steps`` with operands of 16 bits, and the names of the sums that read one which rounds."""
    known: dict[tuple[Expr, DType], tuple[Def, int, str]] = {}
    defs, names, changed = list(steps.defs), dict(steps.names), set[str]()
    for d in [d for d in steps.defs if d.op is not None]:
        found = operand_of(steps, d)
        if found is None or len(d.red) != 1 or ((ld := half(found[0])) is not None and ld.dtype is found[1].dtype):
            continue
        left, matrix = found
        red, back = d.red[0], _back(steps, d, left)
        if back is None or (matrix.dtype is DType.F16 and not _fits(steps, left)):
            continue
        key = (substitute(left, {red.name: Var(_ANY)}), matrix.dtype)
        if key not in known:
            made = _operand(steps, d, left, matrix.dtype, back, {*taken, *names, *names.values()})
            reading = unused(f"{made.name}_read", {*taken, *names, *names.values()})
            names[reading] = made.name
            known[key] = made, back, reading
            first = next(n for n, x in enumerate(defs) if x.name == d.name)
            defs.insert(first if back == 0 else len(defs), made)
        made, back, reading = known[key]
        index = tuple(_read_at(steps, a, red, back) for a in made.par)
        element = Op("cast", (Load(reading, index, matrix.dtype, d.span),), DType.F32)
        value = Op("mul", (element, Op("cast", (matrix,), DType.F32)), DType.F32)
        defs = [replace(x, value=value) if x.name == d.name else x for x in defs]
        changed.add(d.name)
    return Steps(tuple(defs), steps.shared, steps.step, names), frozenset(changed)


_ANY = "?"


def _read_at(steps: Steps, a: Axis, red: Axis, back: int) -> Expr:
    """The position along the axis ``a`` of an operand at which a sum over ``red`` reads it."""
    if a.name == steps.step.var:
        return calc("sub", Var(a.name), back) if back else Var(a.name)
    return Var(a.name) if a.name in steps.outer else Var(red.name)


def _back(steps: Steps, d: Def, left: Expr) -> int | None:
    """How many steps before the sum ``d`` its operand ``left`` is known; None where it is no operand of a recurrence.

    An operand is computed in all steps, also where a condition leaves out the sum.  So it reads states of its own
    thread, which are 0 before the first step, and other tensors at its own step.
    """
    found, red = list(loads(left)), Var(d.red[0].name)
    members = [ld for ld in found if ld.buffer in steps.names]
    own = all(ld.index[n] == red for ld in members for n in steps.places(steps.source(ld)))
    if not members or not own or left.dtype is not DType.F32:
        return None
    back, step = min(map(steps.back, members)), steps.step.var
    others = [e for ld in found if ld.buffer not in steps.names for e in ld.index if step in free_vars(e)]
    return None if any(back or e != Var(step) for e in others) else back


def _operand(steps: Steps, d: Def, left: Expr, dtype: DType, back: int, taken: Collection[str]) -> Def:
    """The definition of ``left``, computed in the step in which it is known."""
    (red,) = d.red
    others = {a.name for x in steps.defs for a in x.axes}
    own = Axis(unused(f"{red.name}_own", others), red.extent)
    later: dict[str, Expr] = {red.name: Var(own.name)}
    if back:
        later[steps.step.var] = calc("add", Var(steps.step.var), back)
    value = Op("cast", (Op("narrow", (substitute(left, later),), dtype),), DType.F32)
    par = (*(a for a in d.par if a.name in steps.outer), own)
    name = unused(f"{d.name}_operand", taken)
    buffer = Buffer(name, dtype, tuple(a.extent for a in par), Space.TEMP, d.span)
    return Def(name, buffer, par, (), None, value, None, d.span)


_DEEP = 2  # definitions between a tensor and what is known of it


# -- ranges ---------------------------------------------------------------------------------------


def _fits(steps: Steps, left: Expr) -> bool:
    """Whether f16 holds ``left`` for any finite inputs."""
    top = magnitude(Ranges({}, ()).of(_known(steps, left, _bounded(steps, left))))[1]
    return isfinite(top) and top <= FITS_F16


def _bounded(steps: Steps, e: Expr) -> dict[str, float]:
    """The tensors of which ``e`` is computed, and their largest magnitudes where induction proves them."""
    found, seen, values = dict[str, float](), set[str](), [e]
    for _ in range(_DEEP + 1):
        names = {steps.names[ld.buffer] for x in values for ld in loads(x) if ld.buffer in steps.names} - seen
        tops = {name: _mean(steps, d) or _fading(steps, d) for name in names for d in [steps.made[name]]}
        found |= {name: top for name, top in tops.items() if top is not None}
        seen |= names
        values = [steps.made[name].value for name in sorted(names - found.keys())]
    return found


def _mean(steps: Steps, d: Def) -> float | None:
    """The bound of ``d`` if it is a mean of bounded numbers and its own element of the step before."""
    if not (isinstance(d.value, Op) and d.value.op == "add"):
        return None
    for new, old in (d.value.args, d.value.args[::-1]):
        match new, _chosen(old):
            case Op(op="mul", args=(a, b)), Op(op="mul", args=(x, y)):
                for (share, number), (z, state) in product(((a, b), (b, a)), ((x, y), (y, x))):
                    top = _mixed(steps, d, share, number, z, state)
                    if top is not None:
                        return top
    return None


def _mixed(steps: Steps, d: Def, share: Expr, number: Expr, z: Expr, state: Expr) -> float | None:
    """The bound of ``d``, ``share * number + z * state``, if ``share`` is ``1 - z`` and ``state`` an element of it."""
    element = state if isinstance(state, Load) else half(state)
    if element is None or steps.names.get(element.buffer) != d.name:
        return None
    match share:
        case Op(op="sub", args=(Const(value=1.0), other)) if other == z:
            ranges = Ranges({}, ())
            low, high = ranges.of(_known(steps, z, {}))
            top = magnitude(ranges.of(_known(steps, number, {})))[1]
            return top * _ROUNDINGS if low >= -_OUTWARD and high <= 1.0 + _OUTWARD and isfinite(top) else None
    return None


def _fading(steps: Steps, d: Def) -> float | None:
    """The bound of ``d`` if it is a bounded number and less than its own element of the step before."""
    if d.op is not None or not (isinstance(d.value, Op) and d.value.op == "add"):
        return None
    ranges = Ranges({}, ())
    for new, old in (d.value.args, d.value.args[::-1]):
        match _chosen(old):
            case Op(op="mul", args=(x, y)):
                for q, state in ((x, y), (y, x)):
                    read = _chosen(state)
                    element = read if isinstance(read, Load) else half(read)
                    if element is None or steps.names.get(element.buffer) != d.name or steps.back(element) != 1:
                        continue
                    share = magnitude(ranges.of(_known(steps, q, {})))[1]
                    top = magnitude(ranges.of(_known(steps, new, {})))[1]
                    if share <= _LARGEST_SHARE and isfinite(top):
                        return top / (1.0 - share) * _ROUNDINGS
    return None


_LARGEST_SHARE = 1.0 - 2.0**-10
_ROUNDINGS = 1.5  # of a mean in f32, over 2^20 steps
_OUTWARD = 2.0**-40  # by which intervals are rounded outwards, at most


def _chosen(e: Expr) -> Expr:
    """The value that ``e`` has where it is not 0."""
    match e:
        case Op(op="select", args=(_, a, Const(value=0.0))):
            return a
    return e


def _known(steps: Steps, e: Expr, bounds: dict[str, float], deep: int = _DEEP) -> Expr:
    """``e`` with the values of elementwise tensors of the recurrence in place of their elements, ``deep`` times."""

    def rule(n: Expr) -> Expr | None:
        if not (isinstance(n, Load) and n.buffer in steps.names):
            return None
        d = steps.source(n)
        if d.name in bounds:
            top = bounds[d.name]
            return Op("max", (Op("min", (n, Const(top, DType.F32)), DType.F32), Const(-top, DType.F32)), DType.F32)
        if not deep or d.op is not None or d.guard is not None or d.at is not None or d.buffer.dtype is not n.dtype:
            return None
        places = dict(zip((a.name for a in d.par), n.index, strict=True))
        value = substitute(d.value, places)
        return _known(steps, value, bounds, deep - 1) if value.dtype is n.dtype else None

    return rewrite(e, rule)
