"""Facts about runtime sizes under which a variant may be faster.

* *Bounds*: a loop over an axis of any length reads its elements again for each reduction that depends on an earlier
  one, as a softmax does.  Under a bound the row may stay in the registers of a block.  The planner decides which
  rows fit; the bounds are tried where a loop over the size reads what is read elsewhere too (:func:`read_again`),
  where the tile of a row is as long as the bound of the spec (:func:`whole_rows`), and where running results are in
  chunks (:func:`chunked_scans`): a short row then needs neither the registers nor the kernels of a long one.
  The elements at which a kernel combines terms are in shared memory where a block has space (:func:`scattered_to`).
  The steps of a recurrence run in chunks whose length follows from the bound of their number (:func:`steps`).
  Axes collapse where one index counts their elements (:func:`counted`).
* *Equations* give a size by others, as that of the ends of segments (:func:`given_by_others`).
* *Divisors*: rows start at multiples of 16 bytes only where the last size of a tensor is a multiple of a vector
  (:func:`whole_vectors`).  Wide loads and copy units need that, and so does a temp whose rows are along a contracted
  axis of operands of 8 bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Expr, Op, Param, Reduce, free_vars, loads, refs, walk
from nautilus.core.index.sizes import MAX_DIM, NOMINAL, Extent, at_most, volume
from nautilus.core.schedule.dispatch import SizeFact
from nautilus.core.tiles import floor_pow2
from nautilus.core.types import DType
from nautilus.frontend.sizes import samples
from nautilus.frontend.spec import Dim, Spec
from nautilus.ma_tile.ir.ops import ForOp, GlobalLoad, GlobalStore, MemModule, MemOp, ScanOp, walk_ops
from nautilus.targets.limits import SCATTER_BYTES, VECTOR_BYTES

_BYTES = frozenset({DType.F8E4M3, DType.F8E5M2, DType.I8, DType.U8})
VARIED = 3  # dims whose sizes vary
BOUNDS = (512, 2048, 4096, 8192, 16384, 32768)  # elements of a row; a thread of the largest block has 64 of the last
TABLES = (16, 1)  # shares of the most elements that a block may combine: few of them have copies
STEPS = (128, 1024, 8192)  # steps of a recurrence; a chunk has about the square root of them
SCANS = (1 << 17, 1 << 22)  # elements of running results; the chunks of the first ones fit in one tile


def bounds(dim: Dim, among: Sequence[int] = BOUNDS) -> Iterator[SizeFact]:
    """The bounds ``among`` that say more of ``dim`` than its spec does."""
    most = MAX_DIM if dim.bound is None else dim.bound
    yield from (SizeFact(dim.name, n) for n in among if dim.least <= n < most)


def below_bounds(spec: Spec, module: MemModule, among: Sequence[int]) -> Iterator[SizeFact]:
    """Bounds under which a kernel of ``module`` may have whole rows, or the elements that it scatters to, in a block.

    ``among``: those of rows.
    """
    rows = chunked_scans(module).union(read_again(module), whole_rows(module)) - steps(spec)
    tables = scattered_to(module)
    for d in varied(spec):
        if d.name in rows:
            yield from bounds(d, among)
        elif d.name in tables:
            yield from bounds(d, [tables[d.name] // few for few in TABLES])


def steps(spec: Spec) -> frozenset[str]:
    """The runtime sizes that are numbers of steps of recurrences."""
    found = (d.axes[d.recurrence.axis].extent for d in spec.definitions if d.recurrence is not None)
    return frozenset(e.name for e in found if isinstance(e, Param))


def counted(spec: Spec, among: Collection[str]) -> tuple[SizeFact, ...]:
    """Bounds of the sizes ``among`` below which one index counts the elements of each tensor.

    There are none where it always does, or where no two axes are reduced together.  The sizes of one tensor have equal
    bounds.
    """
    summed = _summed_together(spec)
    most = dict[str, int]()
    for t in spec.inputs:
        late = {e.name for e in t.shape if isinstance(e, Param) and not e.device}
        if (
            late.isdisjoint(summed)
            or at_most(volume(t.shape)) <= MAX_DIM
            or not late <= set(among)
            or t.strides is not None
        ):
            continue
        rest = at_most(volume(e for e in t.shape if not (isinstance(e, Param) and e.name in late)))
        bound = floor_pow2(int((MAX_DIM // rest) ** (1 / len(late)))) if rest <= MAX_DIM else 0
        most |= {name: min(bound, most.get(name, bound)) for name in late}
    return tuple(SizeFact(name, n) for name, n in sorted(most.items())) if all(most.values()) else ()


def _summed_together(spec: Spec) -> frozenset[str]:
    """The runtime sizes of axes that are reduced with others."""
    found = (e for d in spec.definitions for e in walk(d.expr) if isinstance(e, Reduce) and len(e.axes) > 1)
    return frozenset(a.extent.name for e in found for a in e.axes if isinstance(a.extent, Param))


def read_again(module: MemModule) -> frozenset[str]:
    """The runtime sizes of loops that read a tensor that is read outside of the loop too."""
    reads, loops = Counter[str](), list[tuple[ForOp, Counter[str]]]()
    for kernel in module.kernels:
        for op in walk_ops(kernel.body):
            reads += _loaded(op)
            if isinstance(op, ForOp):
                inside = sum((_loaded(o) for o in walk_ops(op.body)), Counter[str]())
                loops.append((op, inside))
    found = ((op, b) for op, inside in loops for b, n in inside.items() if reads[b] > n)
    return frozenset(name for op, _ in found for name in _sizes(op.hi))


def whole_rows(module: MemModule) -> frozenset[str]:
    """The runtime sizes that end rows which are one tile, of more elements than the least bound."""
    masked = ((op, op.mask) for k in module.kernels for op in walk_ops(k.body) if isinstance(op, GlobalLoad))
    return frozenset(x for op, mask in masked if mask is not None for e in walk(mask) for x in _ends(op, e))


def _ends(op: GlobalLoad, e: Expr) -> Collection[str]:
    """The sizes in the comparison ``e`` of nothing but axes of the tile of ``op``."""
    long = {a.name for a in op.result.type.axes if a.size > BOUNDS[0]}
    names = free_vars(e)
    return _sizes(e) if isinstance(e, Op) and e.op in ("lt", "le") and names and names <= long else frozenset()


def chunked_scans(module: MemModule) -> frozenset[str]:
    """The runtime sizes along which running results are in chunks, which other kernels combine."""
    if len(module.kernels) < 2:
        return frozenset()
    scans = [k for k in module.kernels if any(isinstance(op, ScanOp) for op in walk_ops(k.body))]
    masks = (op.mask for k in scans for op in walk_ops(k.body) if isinstance(op, GlobalLoad))
    return frozenset(x for mask in masks if mask is not None for x in _sizes(mask))


def scattered_to(module: MemModule) -> Mapping[str, int]:
    """Runtime sizes of rows at whose elements kernels combine terms, and the most of them that a block may have."""
    found, buffers = dict[str, int](), {b.name: b for b in module.buffers}
    for op in (op for k in module.kernels for op in walk_ops(k.body)):
        if isinstance(op, GlobalStore) and op.combiner is not None and refs(op.index[-1]):
            last = buffers[op.buffer].shape[-1]
            if isinstance(last, Param) and not last.device:
                most = floor_pow2(SCATTER_BYTES // max(4, buffers[op.buffer].dtype.bytes))
                found[last.name] = min(most, found.get(last.name, most))
    return found


def _loaded(op: MemOp) -> Counter[str]:
    return Counter([op.buffer] if isinstance(op, GlobalLoad) else [])


def _sizes(e: Expr) -> Collection[str]:
    return {n.name for n in walk(e) if isinstance(n, Param) and n.dtype is DType.I32 and n.most is not None}


def whole_vectors(spec: Spec) -> tuple[SizeFact, ...]:
    """Facts that the rows of all tensors are whole vectors, about the sizes of which the spec does not say so.

    A tensor of one axis, along which others have rows, is small beside them: their number need not be one of vectors.
    """
    found = dict[str, int]()
    tensors = (*spec.inputs, *spec.outputs)
    numbers = {e for t in tensors for e in t.shape[:-1] if isinstance(e, Param)}
    rows = [
        (t.shape[-1], t.dtype)
        for t in tensors
        if t.shape and t.strides is None and not (len(t.shape) == 1 and t.shape[0] in numbers)
    ]
    for last, dtype in (*rows, *_turned(spec)):
        if isinstance(last, Param) and not last.device and last.multiple * dtype.bytes % VECTOR_BYTES:
            found[last.name] = max(found.get(last.name, 1), VECTOR_BYTES // dtype.bytes)
    return tuple(SizeFact(name, multiple=by) for name, by in found.items())


def _turned(spec: Spec) -> Iterator[tuple[Extent, DType]]:
    """Sizes along which rows of operands of 8 bits are stored, and their types: they are contracted, and not last."""
    types = {t.name: t.dtype for t in spec.inputs}
    for e in (e for d in spec.definitions for e in walk(d.expr)):
        if isinstance(e, Reduce) and e.op == "sum":
            for ld in loads(e.body):
                outer = {x for i in ld.index[:-1] for x in free_vars(i)}
                if types.get(ld.buffer) in _BYTES:
                    yield from ((a.extent, types[ld.buffer]) for a in e.axes if a.name in outer)


def given_by_others(spec: Spec) -> Iterator[str]:
    """The last dim of each fact that equates sums and products of several runtime sizes."""
    late = [d.name for d in spec.runtime_dims]
    for part in (c for f in spec.facts if not f.promised for c in conjuncts(f.condition)):
        used = {n.name for n in walk(part) if isinstance(n, Param)}
        ops = {n.op for e in getattr(part, "args", ()) for n in walk(e) if isinstance(n, Op)}
        if isinstance(part, Op) and part.op == "eq" and len(used) > 1 and ops <= {"add", "sub", "mul"}:
            yield max((n for n in used if n in late), key=late.index)


def varied(spec: Spec) -> tuple[Dim, ...]:
    """The dims whose sizes vary: the first ones that an axis has and that no equation with earlier ones gives.

    A dim that no axis has is the number of rows of a tensor that is read at computed places; no schedule depends on it.
    """
    axes = [a for d in spec.definitions for a in d.axes]
    names = {a.extent.name for a in axes if isinstance(a.extent, Param)} | reduced(spec)
    return tuple(d for d in spec.launch_dims if d.name in names - {*given_by_others(spec)})[:VARIED]


def reduced(spec: Spec) -> set[str]:
    """The runtime sizes of the axes of reductions."""
    axes = (a for d in spec.definitions for e in walk(d.expr) if isinstance(e, Reduce) for a in e.axes)
    return {a.extent.name for a in axes if isinstance(a.extent, Param)}


def all_sizes(spec: Spec, given: Mapping[str, int]) -> dict[str, int]:
    """The sizes ``given``, and for each other runtime dim one near its nominal size that fits them."""
    return samples([replace(d, sample=given.get(d.name)) for d in spec.runtime_dims], spec.facts, NOMINAL)


def with_given(spec: Spec, given: Collection[str], sizes: Mapping[str, int]) -> Mapping[str, int]:
    """``sizes``, and those of the dims ``given`` that follow from them, as the number of ends of ``B`` segments."""
    return {**sizes, **{n: x for n, x in all_sizes(spec, sizes).items() if n in given}} if given else sizes
