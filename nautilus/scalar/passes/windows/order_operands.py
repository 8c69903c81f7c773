"""``order-operands``: small inputs that reductions read across their last axis are stored in the order of the reads.

A depthwise convolution along time has channels last, and weights of which the taps are last, as frameworks store them::

    Y[b, t, c] sum= X[b, t + k - 15, c] * W[c, k]

A thread computes vectors of channels, whose weights for one tap are apart in memory: each of them is a load of its own,
which touches a line of its own for each lane.  The weights become a temp with channels last, which one more kernel
stores::

    W_ordered[k, c] = W[c, k]           Y[b, t, c] sum= X[b, t + k - 15, c] * W_ordered[k, c]

So do points of at most :data:`COORDINATES` coordinates, of which each result reads all beside other inputs, as in
forces of particles and distances between clouds of points.  Lanes then have neighbouring points in vectors::

    F[i] sum= f(X[i, 0] - X[j, 0], X[i, 1] - X[j, 1])
    X_ordered[d, j] = X[j, d]               F[i] sum= f(X_ordered[0, i] - X_ordered[0, j], ..)

Elementwise definitions beside such a reduction, as those of a softmax of distances, read the points in the same order.

Weights are inputs that reductions read at distinct axes, of which the last one is reduced.  The operand of such a
reduction that has most axes has windows of more than :data:`WHOLE` terms, and its last axis is one of the result that
the weights have at another place.  The lines that loads of single elements touch take longer than the launch of a
kernel, where a thread has :data:`RESULTS` results for each element, and there are :data:`AGAIN` terms for each element
or more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import in_compute_type
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Param, Var, free_vars, loads, rewrite
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.core.text.names import fresh
from nautilus.scalar.analysis.contractions.dense import stored_operands
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets.memory_rates import LAUNCH
from nautilus.targets.rates import Machine, machine
from nautilus.targets.records import DEFAULT_TARGET

RESULTS = 8  # results of a thread that one element has, about
AGAIN = 64  # terms for each element, at least
WHOLE = 16  # terms of a window that a thread holds whole, with the weights of several results
COORDINATES = 4
GAIN = 1.0  # the time saved, relative to that of a launch


@dataclass(frozen=True, slots=True)
class OrderOperands:
    """``arch``: the target, whose rates decide; ``always``: for small reductions too."""

    arch: str = DEFAULT_TARGET
    always: bool = False

    name = "order-operands"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such input; the same object where there is none."""
        rates = None if self.always else machine(self.arch)
        plans = [x for b in program.buffers for x in _plans(program, b, rates)]
        for b, order, readers in plans:
            program = _ordered(program, b, order, readers)
        return program


def _plans(
    program: Program, b: Buffer, rates: Machine | None
) -> Iterator[tuple[Buffer, tuple[int, ...], tuple[str, ...]]]:
    """The input ``b`` with each order in which definitions should read it, and the names of these.

    ``rates`` None: also of definitions for which this does not pay.
    """
    found: dict[tuple[int, ...], tuple[str, ...]] = {}
    plain = b.strides is None and len(b.shape) > 1 and all(isinstance(n, int | Param) for n in b.shape)
    if b.space is not Space.INPUT or not plain:
        return
    defs = find_defs(program)
    for d in defs.values():
        order = _order(d, b, defs) if rates is None or _pays(d, b, rates) else ()
        if order:
            found[order] = (*found.get(order, ()), d.name)
    yield from ((b, order, (*readers, *_beside(readers, b, defs))) for order, readers in found.items())


def _beside(readers: Collection[str], b: Buffer, defs: Mapping[str, Def]) -> Iterator[str]:
    """Elementwise definitions that read results of ``readers`` and ``b``: one kernel then has the same tile for all."""
    for d in defs.values():
        read = {ld.buffer for ld in d.reads()}
        if not d.is_reduction and d.scatter is None and b.name in read and not read.isdisjoint(readers):
            yield d.name


def _pays(d: Def, b: Buffer, rates: Machine) -> bool:
    """Whether ``d`` reads the elements of ``b`` so often that a kernel which orders them takes less time."""
    seconds = points(d.axes) / RESULTS / (rates.multiprocessors * rates.clock)
    return seconds * GAIN > LAUNCH * 1e-6 and AGAIN * prod(map(nominal, b.shape)) <= points(d.axes)


def _order(d: Def, b: Buffer, defs: Mapping[str, Def]) -> tuple[int, ...]:
    """The order of the dimensions of ``b`` in which ``d`` should read it; () for that which it has."""
    reads = [ld for ld in d.reads() if ld.buffer == b.name]
    if not d.is_reduction or not reads:
        return ()
    last = _vectors(d, reads) if points(d.red) > WHOLE else None
    reduced = {a.name for a in d.red}
    is_chain = any(ld.buffer in defs and free_vars(ld) & reduced for ld in d.reads())  # its kernel may compute these
    if last is None and not is_chain and _has_coordinates(d, b, reads):
        last = len(b.shape) - 2
    return () if last is None else (*(n for n in range(len(b.shape)) if n != last), last)


def _vectors(d: Def, reads: Sequence[Load]) -> int | None:
    """The dimension of the weights ``reads`` along which the results of windows are vectors; None for no weights."""
    vector = _vector_axis(d)
    (ld, *others) = reads
    if others or vector is None or len(set(ld.index)) != len(ld.index) or ld.buffer in stored_operands(d):
        return None
    last, reduced = ld.index[-1], {a.name for a in d.red}
    if not all(isinstance(e, Var) for e in ld.index) or not free_vars(last) <= reduced or Var(vector) not in ld.index:
        return None
    return ld.index.index(Var(vector))


def _has_coordinates(d: Def, b: Buffer, reads: Sequence[Load]) -> bool:
    """Whether ``d`` reads points of few coordinates, all of those of a point, along a reduced axis.

    Or one for each component of its results, beside points.  Results are those of pairs: no tensor has their elements.
    """
    reduced, kept = {a.name for a in d.red}, {a.name for a in d.par}
    plain = [free_vars(ld) for ld in d.reads() if not any(map(loads, ld.index))]
    if d.par and all(any(x in names and names & reduced for names in plain) for x in kept):
        return False
    along = [ld for ld in reads if _moves(ld, reduced)]
    few = 1 < nominal(b.shape[-1]) <= COORDINATES < nominal(b.shape[-2])
    near = all(not free_vars(ld.index[-1]) & reduced for ld in along)
    whole = len({ld.index[-1] for ld in along}) >= nominal(b.shape[-1])
    beside = any(free_vars(ld.index[-1]) & kept for ld in along) and any(
        _moves(ld, reduced) and isinstance(ld.index[-1], Const) for ld in d.reads()
    )
    return few and near and (whole or beside)


def _moves(ld: Load, reduced: set[str]) -> bool:
    """Whether the last index but one of ``ld`` is one of the axes ``reduced``."""
    place = ld.index[-2] if len(ld.index) > 1 else None
    return isinstance(place, Var) and place.name in reduced


def _vector_axis(d: Def) -> str | None:
    """The axis of the result that the operand with the most axes has last, where it has windows along another one."""
    reduced, kept = {a.name for a in d.red}, {a.name for a in d.par}
    largest = max(d.reads(), key=lambda ld: len(free_vars(ld)), default=None)
    if largest is None or not largest.index:
        return None
    last = largest.index[-1]
    slides = any(free_vars(e) & reduced and free_vars(e) & kept for e in largest.index[:-1])
    return last.name if slides and isinstance(last, Var) and last.name in kept else None


def is_ordered(d: Def, value: Load, reader: Def) -> bool:
    """Whether ``d`` has the elements ``value`` of a tensor in another order, and ``reader`` reads each many times."""
    same = {*value.index} == {Var(a.name) for a in d.par}
    turned = same and d.par != () and value.index[-1] != Var(d.par[-1].name)
    return reader.is_reduction and turned and AGAIN * points(d.par) <= points(reader.axes)


def ordered_temp(name: str, b: Buffer, axes: Sequence[Axis], order: Sequence[int]) -> Def:
    """Temp ``name`` with the dimensions of ``b`` in ``order``; ``axes``: those of ``b``, in its own order."""
    value = in_compute_type(Load(b.name, tuple(Var(a.name) for a in axes), b.dtype, b.span))
    par = tuple(axes[n] for n in order)
    buffer = Buffer(name, b.dtype, tuple(a.extent for a in par), Space.TEMP, b.span)
    return Def(name, buffer, par, (), None, value, None, b.span)


def _ordered(program: Program, b: Buffer, order: tuple[int, ...], readers: Sequence[str]) -> Program:
    """``program`` in which ``readers`` read a temp with the dimensions ``order`` of ``b``."""
    taken, axes = set[str](), list[Axis]()
    for n in b.shape:
        assert isinstance(n, int | Param)
        axes.append(Axis(fresh("i", taken), n, b.span))
    name = fresh_name(program, f"{b.name}_ordered")
    stored = ordered_temp(name, b, axes, order)

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer != b.name:
            return None
        return replace(e, buffer=name, index=tuple(rewrite(e.index[n], rule) for n in order))

    for n, reader in enumerate(readers):
        d = find_defs(program)[reader]
        guard = None if d.guard is None else rewrite(d.guard, rule)
        made = replace(d, value=rewrite(d.value, rule), guard=guard)
        program = put_defs(program, d.name, (made,) if n else (stored, made))
    return program
