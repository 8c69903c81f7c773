"""``approximate``: replaces f32 functions by the instructions that compute them with a few units of error.

The pass applies only under ``precision`` fast, and to powers with a constant exponent of at most 1 in magnitude, whose
approximation is no less exact than the function.  ``core.functions`` names the approximation of each function and
states its error; those for narrow outputs only belong to ``hardware-math``.  The pass is one of the last, because
earlier passes rewrite the exact functions.

The division of two f32 numbers that rounds once has a branch for quotients that may be subnormal.  Quotients of 0 take
it too, and these are frequent: most intersections of pairs of boxes are empty.  The square root takes three times as
many instructions.  A quotient or a root that is reduced, or that an operation reads which rounds, and that is
neither stored by itself nor carried to the next iteration of a loop, has the function without a branch, and so has one
that is stored, if the error of an exponential or another such function is in an operand::

    y[i] = a[i] / b[i]                  exact
    y[i] = exp(-a[i] / b[i]) + c[i]     div_approx: the other roundings are as large
    y[i] = exp(a[i]) / b[i]             div_approx: the numerator has an error of a unit or two

No function that jumps reads it, and where such numbers are compared with others, as the largest one of a row is, all of
the module are computed alike but those that only become outputs.

The same holds for logarithms, but only a reduction, or a rounding to 16 bits, by a store too, hides their larger error.
The exact ones take twice as many instructions, and ``log1p`` has a branch, for which a thread computes one result after
another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import COMPARISONS
from nautilus.core.expr.quotients import EXACT, is_power_of_two, jumps
from nautilus.core.functions import FUNCTIONS
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import (
    ConstOp,
    ConvertOp,
    ForOp,
    GlobalLoad,
    GlobalStore,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    ReduceOp,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import each_kernel, reads, rebuild

#: function -> the one that computes it in f32 with fewer instructions
APPROXIMATIONS: Mapping[str, str] = {
    f.name: a.function for f in FUNCTIONS.values() for a in f.approximations if a.function and not a.narrow
}
_ONCE = ("div", "sqrt")  # they round once
_LOGARITHMS = ("log2", "log1p")
_BITS = 16  # a rounding to a float of so many bits hides the error of an approximate logarithm


@dataclass(frozen=True, slots=True)
class Approximate:
    """No change under ``precision`` strict."""

    precision: str = "fast"

    name = "approximate"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with instructions in place of exact functions."""
        if self.precision != "fast":
            return module
        reduced = {k.name: frozenset[str]() for k in module.kernels}
        loaded = {op.buffer for k in module.kernels for op in walk_ops(k.body) if isinstance(op, GlobalLoad)}
        final = frozenset(b.name for b in module.buffers if b.space is Space.OUTPUT) - loaded
        for names, bits in ((_ONCE, 0), (_LOGARITHMS, _BITS)):
            rounding = {b.name for b in module.buffers if b.dtype.is_float and b.dtype.bits <= bits}
            found = {k.name: _results(k, names, bits, final, rounding) for k in module.kernels}
            if all(r.alike for r in found.values()) or not any(r.compared for r in found.values()):
                reduced = {name: values | found[name].reduced for name, values in reduced.items()}
        return each_kernel(module, lambda k: _approximated(k, reduced[k.name]))


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of some f32 functions of which only reductions are left, and whether any result is compared.

    ``alike``: all others only become outputs, which no kernel reads again.
    """

    reduced: frozenset[str]
    alike: bool
    compared: bool


def _results(
    k: MemKernel, names: tuple[str, ...], bits: int, final: frozenset[str], rounding: Collection[str]
) -> _Results:
    """The results of the functions ``names``; a rounding to a float of at most ``bits`` bits counts as a reduction.

    ``final``: buffers that no kernel reads; ``rounding``: those whose stores are such roundings.
    """
    ops = [*walk_ops(k.body)]
    found = {x.result.name for x in ops if isinstance(x, MapOp) and x.op in names and x.result.type.dtype is DType.F32}
    if not found:
        return _Results(frozenset(), True, False)
    scales = {x.result.name for x in ops if isinstance(x, MapOp) and x.op == "binade"}  # quotients of powers of two
    exact = {x.result.name for x in ops if isinstance(x, MapOp) and not scales.isdisjoint(a.name for a in x.args)}
    constants = {x.result.name for x in ops if isinstance(x, ConstOp)}
    scaling = {x.result.name for x in ops if isinstance(x, ConstOp) and is_power_of_two(float(x.value))}
    kept, used, compared = exact, set(exact), set[str]()  # values that reach such a use through elementwise operations
    stored = set[str]()  # those that reach a store without a rounding
    for op in ops:
        if isinstance(op, GlobalStore):
            stored |= set(reads(op)) - ({op.value.name} if op.buffer in rounding else set())
        elif not isinstance(op, MapOp | ConvertOp | ReduceOp):
            kept |= set(reads(op)) | ({v.name for v in op.yields} if isinstance(op, ForOp) else set())
    for op in ops:
        if not (isinstance(op, MapOp | ConvertOp) or (isinstance(op, GlobalStore) and op.buffer in final)):
            used |= set(reads(op)) | ({v.name for v in op.yields} if isinstance(op, ForOp) else set())
    for op in reversed(ops):
        if not isinstance(op, MapOp | ConvertOp):
            continue
        made = op.result
        rounded = made.type.dtype.is_float and made.type.dtype.bits <= bits
        if isinstance(op, MapOp):
            fixed = any(a.name in constants for a in op.args)
            hides = rounded or (not bits and _rounds(op, scaling))
            for a in op.args:
                if made.name in stored and not hides:
                    stored.add(a.name)
                if (made.name in kept and not rounded) or jumps(op.op, made.type.dtype, a.type.dtype, fixed):
                    kept.add(a.name)
                if made.name in used or op.op in COMPARISONS:
                    used.add(a.name)
                if made.name in compared or (op.op in COMPARISONS and a.type.dtype.is_float and not fixed):
                    compared.add(a.name)
        else:
            kept |= {op.arg.name} if made.name in kept and not rounded else set()
            stored |= {op.arg.name} if made.name in stored and not rounded else set()
            used |= {op.arg.name} if made.name in used else set()
            compared |= {op.arg.name} if made.name in compared else set()
    kept |= stored - (set() if bits else _of_inexact(ops))
    return _Results(frozenset(found - kept), not found & kept & used, bool(found & compared))


def _of_inexact(ops: Collection[MemOp]) -> set[str]:
    """The elementwise results of which an operand holds the error of a function, in the order of ``ops``."""
    inexact, found = set[str](), set[str]()
    for op in ops:
        if isinstance(op, MapOp | ConvertOp | ReduceOp) and op.result.type.dtype.is_float:
            of = not inexact.isdisjoint(reads(op))
            if of and isinstance(op, MapOp):
                found.add(op.result.name)
            if of or (isinstance(op, MapOp) and op.op not in _ONCE and FUNCTIONS[op.op].ulps[0] >= 1.0):
                inexact.add(op.result.name)
    return found


def _rounds(op: MapOp, scaling: Collection[str]) -> bool:
    """Whether the result of ``op`` is a float with a rounding; ``scaling``: constants that are powers of two."""
    scales = op.op == "mul" and any(a.name in scaling for a in op.args)
    return op.result.type.dtype.is_float and op.op not in (*EXACT, "mul_unless_one") and not scales


def _approximated(kernel: MemKernel, reduced: frozenset[str]) -> MemKernel:
    """``kernel`` with approximations; those of divisions, roots and logarithms for ``reduced`` alone."""
    constants = {x.result.name: float(x.value) for x in walk_ops(kernel.body) if isinstance(x, ConstOp)}

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        if not (isinstance(op, MapOp) and op.op in APPROXIMATIONS and op.result.type.dtype is DType.F32):
            return (op,)
        if op.op == "pow" and not 0.0 < abs(constants.get(op.args[1].name, inf)) <= 1.0:
            return (op,)
        if op.op in (*_ONCE, *_LOGARITHMS) and op.result.name not in reduced:
            return (op,)
        return (replace(op, op=APPROXIMATIONS[op.op]),)

    return replace(kernel, body=rebuild(kernel.body, rule))
