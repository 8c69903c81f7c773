"""``order-weights``: weights of windows over vectors have the order of the vectors.

A depthwise convolution along time has channels last, and weights of which the taps are last, as frameworks store them::

    Y[b, t, c] sum= X[b, t + k - 15, c] * W[c, k]

A thread computes vectors of channels, whose weights for one tap are apart in memory: each of them is a load of its own,
which touches a line of its own for each lane.  The weights become a temp with channels last, which one more kernel
stores::

    W_ordered[k, c] = W[c, k]           Y[b, t, c] sum= X[b, t + k - 15, c] * W_ordered[k, c]

It is done for inputs that are read at distinct axes, the last one reduced, by reductions of which the operand with the
most axes has windows of more than :data:`WHOLE` terms and an axis of the result last, which the weights have elsewhere.
The lines that loads of single weights touch take longer than the launch of a kernel, where a thread has
:data:`RESULTS` results for each weight.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, rewrite
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets.memory_rates import LAUNCH
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

RESULTS = 8  # results of a thread that one weight has, about
AGAIN = 64  # terms for each weight, at least
WHOLE = 16  # terms of a window that a thread holds whole, with the weights of several results
GAIN = 1.0  # the time saved, relative to that of a launch


@dataclass(frozen=True, slots=True)
class OrderWeights:
    """``arch``: the target, whose rates decide."""

    arch: str = DEFAULT_TARGET

    name = "order-weights"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such input; the same object where there is none."""
        rates = machine(self.arch)
        inputs = {b.name: b for b in program.buffers if b.space is Space.INPUT and b.strides is None}
        for d in find_defs(program).values():
            seconds = points(d.axes) / RESULTS / (rates.multiprocessors * rates.clock)
            long = points(d.red) > WHOLE and seconds * GAIN > LAUNCH * 1e-6
            for ld in dict.fromkeys(d.reads()) if long else ():
                axes = vector_order(d, ld) if ld.buffer in inputs else ()
                if axes and AGAIN * points(axes) <= points(d.axes) and _is_whole(axes, inputs[ld.buffer]):
                    program = _ordered(program, find_defs(program)[d.name], ld, axes, inputs[ld.buffer])
        return program


def vector_order(d: Def, ld: Load) -> tuple[Axis, ...]:
    """The axes of the weights ``ld`` of ``d`` with that of its vectors last; () where they are no such weights."""
    if not d.is_reduction or not all(isinstance(e, Var) for e in ld.index) or len(set(ld.index)) != len(ld.index):
        return ()
    reduced, kept = {a.name for a in d.red}, {a.name for a in d.par}
    vector = _vector_axis(d, reduced, kept)
    names = [e.name for e in ld.index if isinstance(e, Var)]
    if vector not in names or names[-1] not in reduced:
        return ()
    axes = {a.name: a for a in d.axes}
    return tuple(axes[x] for x in (*(x for x in names if x != vector), vector))


def has_vector_order(d: Def, value: Load, reader: Def) -> bool:
    """Whether the elements ``value`` of a tensor are weights ``d`` in the order of the vectors of ``reader``."""
    found = {ld.index[-1] for ld in reader.reads() if ld.buffer == d.name and ld.index}
    vector = _vector_axis(reader, {a.name for a in reader.red}, {a.name for a in reader.par})
    turned = bool(d.par) and bool(value.index) and value.index[-1] != Var(d.par[-1].name)
    return reader.is_reduction and turned and vector is not None and found == {Var(vector)}


def _is_whole(axes: tuple[Axis, ...], weights: Buffer) -> bool:
    """Whether each axis has all elements of its dimension, so that no condition keeps a read within the tensor."""
    return sorted(map(str, (a.extent for a in axes))) == sorted(map(str, weights.shape))


def _vector_axis(d: Def, reduced: set[str], kept: set[str]) -> str | None:
    """The axis of the result that the operand with the most axes has last, where it has windows along another one."""
    largest = max(d.reads(), key=lambda ld: len(free_vars(ld)), default=None)
    if largest is None or not largest.index:
        return None
    last = largest.index[-1]
    slides = any(free_vars(e) & reduced and free_vars(e) & kept for e in largest.index[:-1])
    return last.name if slides and isinstance(last, Var) and last.name in kept else None


def _ordered(program: Program, d: Def, ld: Load, axes: tuple[Axis, ...], weights: Buffer) -> Program:
    """``program`` in which ``d`` reads a temp with the elements of ``weights`` along ``axes`` instead of ``ld``."""
    name = fresh_name(program, f"{ld.buffer}_ordered")
    buffer = Buffer(name, weights.dtype, tuple(a.extent for a in axes), Space.TEMP, d.span)
    value = ld if ld.dtype is ld.dtype.compute else Op("cast", (ld,), ld.dtype.compute, ld.span)
    stored = Def(name, buffer, axes, (), None, value, None, d.span)
    read = Load(name, tuple(Var(a.name) for a in axes), weights.dtype, ld.span)

    def rule(e: Expr) -> Expr | None:
        return read if e == ld else None

    guard = None if d.guard is None else rewrite(d.guard, rule)
    return put_defs(program, d.name, (stored, replace(d, value=rewrite(d.value, rule), guard=guard)))
