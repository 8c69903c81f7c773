"""``vector-steps``: a thread loads and stores the elements of several steps with one instruction.

Where the steps of a recurrence follow each other in memory, as those of signals ``x[b, t]`` do, each lane reads a row
of its own: an instruction for one step touches a sector for each lane, and uses one element of it.  ``V`` steps become
one iteration, whose loads and stores have an axis ``v`` in the registers of a thread::

    for t in 0..T carry(h):                        for s in 0..T // V carry(h):
        %x = ld.global x[b, t]                         %xs = ld.global x[b, s * V + v] vec V
        %h1 = f(%h, %x)                                %x = slice %xs at v 0;  %h1 = f(%h, %x);  ..
        st.global y[b, t], %h1                         %hs = stack %h1, .. over v
                                                       st.global y[b, s * V + v], %hs vec V
                                                   for t in T // V * V..T: the steps that are left

The elements of a load of another step, ``x[b, t - 1]``, are in two vectors, of which the loop carries one from the
iteration before.  A vector that is not in the tensor is not read, and what the mask of a step leaves out is 0 in that
step, as before.

An access qualifies if the number of the step is in its last index alone, with the factor 1 or -1, its vectors are
aligned whatever the sizes, and, for a store, if the kernel does not load the tensor.  In a kernel of one warp, rows
that begin at odd places have single elements instead of vectors, which neighbouring lanes load along the rows and
exchange through shared memory, as ``stage-steps`` stores them.  A
loop that has such a load or store with lanes in another direction is changed; others keep their form.  ``V`` elements
are :data:`ROW` bytes of a row, or of one of the widest elements where there are few steps, half as many where there are
fewer, or less where the loop is long (:data:`COMPUTED`) or would take too long to compile, as functions in f64 do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Const, Expr, Var, free_vars, substitute
from nautilus.core.expr.nodes import refs as refs_of
from nautilus.core.index.divisors import divisor
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import FALSE, TRUE, Ranges, bounds, simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import vector_width
from nautilus.ma_tile.analysis.code_size import MOST, code_size
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import (
    ConstOp,
    ForOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    IndexOp,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    SliceOp,
    StackOp,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import bound, each_kernel, rebuild, stored, variables
from nautilus.ma_tile.passes.steps.prefetch_steps import computed, is_steps
from nautilus.ma_tile.passes.steps.stage_steps import Stages, room
from nautilus.ma_tile.rewriting.renaming import Names, axes_of, layout_name, left_over, step, uniform_ranges

ROW = 64  # bytes of a row in an iteration: two sectors
VECTOR = 16  # bytes of an instruction
COMPUTED = 512  # largest number of registers of the results of all ops in the steps of an iteration
_LOOPS = 2  # `prefetch-steps` has the iterations whose elements are loaded already in a loop of their own
LEAST = 4  # vectors of a loop that is worth the rewrite


@dataclass(frozen=True, slots=True)
class VectorSteps:
    """``steps``: the steps of an iteration of any loop that qualifies (for tests); 0: what the rule says."""

    steps: int = 0
    name = "vector-steps"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose loops access the elements of several steps at once."""
        buffers = {b.name: b for b in module.buffers}
        return each_kernel(module, lambda k: _kernel(k, buffers, self.steps, room(module.target)))


def _kernel(kernel: MemKernel, buffers: Mapping[str, Buffer], steps: int, shared: int) -> MemKernel:
    if kernel.consumers > 1:
        return kernel
    names, layouts = Names(kernel), dict(kernel.layouts)
    stages = Stages(kernel, buffers, shared, layouts, names, {})

    def staged(op: MemOp) -> MemOp:
        return replace(op, body=rebuild(op.body, stages.load)) if isinstance(op, ForOp) else op

    def rule(op: MemOp) -> Sequence[MemOp]:
        if not isinstance(op, ForOp) or not is_steps(op):
            return (op,)
        size = steps or _size(kernel, op, buffers)
        while size > 1:
            made = _Vectors(kernel, op, buffers, size, names, layouts)
            if made.pays:
                return tuple(map(staged, made.ops()))
            size //= 2
        return (op,)

    body = rebuild(kernel.body, rule)
    if body == kernel.body:
        return kernel
    return replace(kernel, body=body, layouts=layouts, smem=(*kernel.smem, *stages.new.values()))


def _size(kernel: MemKernel, loop: ForOp, buffers: Mapping[str, Buffer]) -> int:
    """The steps of an iteration; 1 where none of its accesses lies along the steps."""
    made = computed(kernel, loop)
    along = [buffers[x.buffer].dtype.bytes for x in _accesses(loop) if _slope(x, loop.var)]
    if not along or not isinstance(loop.lo, Const) or any(isinstance(x, ForOp) for x in loop.body):
        return 1
    steps = int(loop.hi.value) - int(loop.lo.value) if isinstance(loop.hi, Const) else None
    size = ROW // min(along)
    while steps is not None and steps < LEAST * size and size > ROW // max(along):
        size //= 2  # rows of wider elements are as long as that
    if steps is not None and steps < LEAST * size:
        size //= 2
    code = code_size(kernel, loop.body)
    while size > 1 and (size * made > COMPUTED or _LOOPS * (size + 1) * code > MOST):
        size //= 2
    return 1 if steps is not None and steps < LEAST * size else size


def _accesses(loop: ForOp) -> Iterator[GlobalLoad | GlobalStore]:
    return (x for x in loop.body if isinstance(x, GlobalLoad | GlobalStore))


def _slope(x: GlobalLoad | GlobalStore, var: str) -> int:
    """1 or -1: how the last index of ``x`` follows the step, which is in no other one; 0: it does not."""
    if not x.index or any(var in free_vars(e) for e in x.index[:-1]) or any(map(refs_of, x.index)):
        return 0
    last = x.index[-1]
    slope = linear(last).slope(var) if var in free_vars(last) else 0
    rest = simplify(calc("sub", last, calc("mul", slope, Var(var)))) if slope else last
    return slope if slope in (1, -1) and var not in free_vars(rest) else 0


@dataclass(frozen=True, slots=True)
class _Run:
    """Vectors of ``size`` steps from the step ``first`` of an iteration on: where, and under which condition.

    ``rest``: the conditions on single steps, over the step.
    """

    first: int
    index: tuple[Expr, ...]
    mask: Expr | None
    vec: int
    rest: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Split:
    """The mask of an access: the conditions on lanes, and those on the step."""

    lanes: tuple[Expr, ...]
    steps: tuple[Expr, ...]


def _alike(a: GlobalLoad, b: GlobalLoad) -> bool:
    """Whether both give the same fragment."""
    kind = a.result.type == b.result.type and a.result.layout == b.result.layout
    return kind and (a.buffer, a.index, a.mask, a.vec) == (b.buffer, b.index, b.mask, b.vec)


def _is_first(x: MapOp, always: set[str]) -> bool:
    """Whether ``x`` chooses its first value under one of the conditions ``always``."""
    same = x.op == "select" and x.args[0].name in always
    return same and (x.args[1].type, x.args[1].layout) == (x.result.type, x.result.layout)


class _Vectors:
    """A loop of steps with ``size`` of them in an iteration; ``names`` and ``layouts`` take what it adds."""

    def __init__(
        self, kernel: MemKernel, loop: ForOp, buffers: Mapping[str, Buffer], size: int, names: Names,
        layouts: dict[str, FragLayout],
    ) -> None:  # fmt: skip
        self.kernel, self.loop, self.buffers, self.size = kernel, loop, buffers, size
        self.names, self.layouts = names, layouts
        self.axis = fresh("v", axes_of(layouts) | names.variables)
        self.written = stored(walk_ops(kernel.body))
        self.read = {x.buffer for x in walk_ops(kernel.body) if isinstance(x, GlobalLoad)}
        self.made = {f.name for x in walk_ops(loop.body) for f in bound(x)} | {a.name for a, _ in loop.carried}
        self.inner = {v for x in walk_ops(loop.body) for v in variables(x)}
        self.low = int(loop.lo.value) if isinstance(loop.lo, Const) else -1
        self.high = simplify(calc("floordiv", loop.hi, size))
        least = min((buffers[x.buffer].dtype.bytes for x in _accesses(loop)), default=0)
        self.staged = kernel.warps == 1 and size * least >= ROW
        self.runs: dict[int, tuple[_Run, ...]] = {}
        if self.low >= 0 and self.low % size == 0:
            for n, x in enumerate(loop.body):
                if isinstance(x, GlobalLoad | GlobalStore) and (found := self.runs_of(x)):
                    self.runs[n] = found

    @property
    def pays(self) -> bool:
        """Whether an access with lanes in another direction has vectors."""
        return any(self.fragment(self.loop.body[n]).type.axes for n in self.runs)

    @staticmethod
    def fragment(x: MemOp) -> Frag:
        assert isinstance(x, GlobalLoad | GlobalStore)
        return x.result if isinstance(x, GlobalLoad) else x.value

    # -- which vectors ----------------------------------------------------------------------------
    def runs_of(self, x: GlobalLoad | GlobalStore) -> tuple[_Run, ...]:
        """The vectors that have the elements of ``x``; none where it does not qualify."""
        slope, mask = _slope(x, self.loop.var), x.mask
        used = frozenset[str]().union(*map(free_vars, (*x.index, *(() if mask is None else (mask,)))))
        if not slope or used & self.inner or (mask is not None and refs_of(mask)):
            return ()
        split = self.split(mask)
        if isinstance(x, GlobalStore):
            plain = x.combiner is None and x.buffer not in self.read
            run = self.run(x, slope, split, 0) if plain else None
            return () if run is None or run.rest else (run,)
        if x.volatile or x.repeat is not None or x.buffer in self.written:
            return ()
        for first in range(self.size):
            runs = [self.run(x, slope, split, n) for n in ([first] if first == 0 else [first, first - self.size])]
            found = tuple(r for r in runs if r is not None)
            if len(found) == len(runs):
                return found
        return ()

    def split(self, mask: Expr | None) -> _Split:
        known = () if mask is None else tuple(conjuncts(mask))
        return _Split(
            tuple(c for c in known if self.loop.var not in free_vars(c)),
            tuple(c for c in known if self.loop.var in free_vars(c)),
        )

    def run(self, x: GlobalLoad | GlobalStore, slope: int, split: _Split, first: int) -> _Run | None:
        """The vectors of the steps from ``first`` on; None where they are not legal."""
        buffer, size = self.buffers[x.buffer], self.size
        place: Expr = Var(self.axis) if slope == 1 else calc("sub", size - 1, Var(self.axis))
        env = {self.loop.var: calc("add", calc("mul", Var(self.loop.var), size), calc("add", place, first))}
        index = tuple(simplify(substitute(e, env)) for e in x.index)
        vec = min(size, max(1, VECTOR // buffer.dtype.bytes))
        if vec == 1:
            return None
        if vector_width(buffer, index, None, self.axis, vec, {}) < vec:
            if first or not self.staged:
                return None
            vec = 1
        known = {c: self.uniform(c) for c in split.steps} if first == 0 else {}
        rest = tuple(c for c in split.steps if known.get(c) is None)
        inside = () if first == 0 and not rest else self.inside(self.fragment(x), buffer, index, split)
        if inside is None:
            return None
        return _Run(first, index, conjunction((*split.lanes, *known.values(), *inside)), vec, rest)

    def uniform(self, c: Expr) -> Expr | None:
        """The condition ``c`` on a step as one on the number of the iteration; None where its steps differ."""
        at = (calc("add", calc("mul", Var(self.loop.var), self.size), k) for k in range(self.size))
        found = {simplify(substitute(c, {self.loop.var: t}), self.ranges()) for t in at}
        return found.pop() if len(found) == 1 else None

    def inside(self, f: Frag, buffer: Buffer, index: tuple[Expr, ...], split: _Split) -> tuple[Expr, ...] | None:
        """The conditions under which whole vectors are in ``buffer``; None where one may be so in part."""
        ranges = dict(self.ranges()) | {a.name: (0, a.size - 1) for a in (*f.type.axes, TileAxis(self.axis, self.size))}
        out: list[Expr] = []
        for n, (e, extent) in enumerate(zip(index, buffer.shape, strict=True)):
            low, high = bounds(e, ranges, split.lanes)
            known = isinstance(extent, int)
            if low is not None and low >= 0 and known and high is not None and high < int(str(extent)):
                continue
            last = n == len(index) - 1
            if not known or (last and (int(str(extent)) % self.size or not self.aligned(e))):
                return None
            start = simplify(substitute(e, {self.axis: integer(0)}))
            out += [calc("le", integer(0), start), calc("lt", start, integer(int(str(extent))))]
        return tuple(c for c in (simplify(c, ranges) for c in out) if c != TRUE)

    def aligned(self, e: Expr) -> bool:
        """Whether ``e`` is a multiple of the vectors' size at their first element."""
        form = linear(e)
        rest = ((t, c) for t, c in form.terms.items() if t != Var(self.axis))
        return form.const % self.size == 0 and all(c * divisor(t) % self.size == 0 for t, c in rest)

    def ranges(self) -> Ranges:
        """The ranges of what is the same in all threads, the number of the iteration included."""
        last = bounds(self.high, uniform_ranges(self.kernel))[1]
        known = dict(uniform_ranges(self.kernel))
        if last is not None and last > self.low // self.size:
            known[self.loop.var] = (self.low // self.size, last - 1)
        return known

    # -- the ops ----------------------------------------------------------------------------------
    def ops(self) -> tuple[MemOp, ...]:
        """The loop over vectors, and that of the steps that are left."""
        loop = self.loop
        loads, parts = self.loads()
        first, kept = self.kept(loads)
        passed = {x.result.name for _, _, x in kept}
        state = [a for a, _ in loop.carried]
        values: dict[int, list[Frag]] = {n: [] for n, x in enumerate(loop.body) if isinstance(x, GlobalStore)}
        body: list[MemOp] = [x for x in loads if x.result.name not in passed]
        for k in range(self.size):
            state = self.step(k, state, parts, values, body)
        for n, runs in self.runs.items():
            x = loop.body[n]
            if isinstance(x, GlobalStore):
                whole = self.vector(x.value, "steps")
                order = values[n] if _slope(x, loop.var) == 1 else values[n][::-1]
                body.append(StackOp(whole, tuple(order), self.axis, x.span))
                (run,) = runs
                body.append(replace(x, index=run.index, mask=run.mask, value=whole, vec=run.vec))
        left = simplify(calc("mul", self.high, self.size))
        all_ = simplify(calc("sub", loop.hi, left)) == integer(0)
        results = loop.results if all_ else tuple(self.names.frag(f, "vectors") for f in loop.results)
        carried = (*loop.carried, *((x.result, f) for f, _, x in kept))
        main = replace(
            loop, results=(*results, *(self.names.frag(f, "end") for f, _, _ in kept)), carried=carried,
            lo=integer(self.low // self.size), hi=self.high, body=tuple(body),
            yields=(*state, *(x.result for _, x, _ in kept)),
        )  # fmt: skip
        return (*first, main) if all_ else (*first, main, left_over(loop, left, results, self.names))

    def loads(self) -> tuple[list[GlobalLoad], dict[int, list[Frag]]]:
        """The loads of an iteration, and for each load of a step the vectors that have its elements."""
        found, parts = list[GlobalLoad](), dict[int, list[Frag]]()
        for n, runs in self.runs.items():
            x = self.loop.body[n]
            if not isinstance(x, GlobalLoad):
                continue
            parts[n] = []
            for r in runs:
                made = replace(x, result=self.vector(x.result, "steps"), index=r.index, mask=r.mask, vec=r.vec)
                same = next((y for y in found if _alike(y, made)), None)
                found += [made] if same is None else []
                parts[n].append((same or made).result)
        return found, parts

    def kept(self, loads: Sequence[GlobalLoad]) -> tuple[list[MemOp], list[tuple[Frag, GlobalLoad, GlobalLoad]]]:
        """What an iteration has from the one before: (first value, the load that has it there, the one it replaces).

        Before them stand the ops that load the first values.
        """
        before, out = list[MemOp](), list[tuple[Frag, GlobalLoad, GlobalLoad]]()
        var = self.loop.var

        def at(e: Expr, step: Expr) -> Expr:
            return simplify(substitute(e, {var: step}))

        for x in loads:
            for y in loads:
                earlier = tuple(at(e, calc("sub", Var(var), 1)) for e in y.index)
                if x is y or not _alike(replace(y, index=earlier, mask=None), replace(x, mask=None)):
                    continue
                lanes = [set(self.split(z.mask).lanes) for z in (x, y)]
                if lanes[0] != lanes[1] or self.split(y.mask).steps:
                    continue
                low = integer(self.low // self.size)
                mask = None if x.mask is None else at(x.mask, low)
                f = self.names.frag(x.result, "before")
                index = tuple(at(e, low) for e in x.index)
                before.append(replace(x, result=f, index=index, mask=None if mask == TRUE else mask))
                out.append((f, y, x))
                break
        return before, out

    def vector(self, f: Frag, suffix: str) -> Frag:
        """A fragment as ``f`` for each step of an iteration."""
        layout = self.layouts[f.layout]
        steps = replace(layout, reg=(Mode(self.size, self.axis, 1), *layout.reg))
        known = layout_name(self.layouts, steps, f"{f.layout}_{self.axis}")
        kind = replace(f.type, axes=(*f.type.axes, TileAxis(self.axis, self.size)))
        return replace(self.names.frag(f, suffix), type=kind, layout=known)

    def step(
        self, k: int, state: Sequence[Frag], parts: Mapping[int, Sequence[Frag]], values: dict[int, list[Frag]],
        body: list[MemOp],
    ) -> list[Frag]:  # fmt: skip
        """Append step ``k`` of an iteration to ``body``, from ``state``; the state after it."""
        loop = self.loop
        at = calc("add", calc("mul", Var(loop.var), self.size), k)
        one = step(loop, at, state, self.names, f"s{k}")
        frags = one.frags
        ranges, always = self.ranges(), set[str]()
        for n, x in enumerate(loop.body):
            if n not in self.runs:
                made = one.op(x)
                if isinstance(made, IndexOp):
                    made = replace(made, expr=simplify(made.expr, ranges))
                    always |= {made.result.name} if made.expr == TRUE else set()
                if isinstance(made, GlobalStore) and made.mask is not None and simplify(made.mask, ranges) == FALSE:
                    continue
                if isinstance(made, MapOp) and _is_first(made, always):
                    frags[made.result.name] = frags[bound(x)[0].name] = made.args[1]
                else:
                    body.append(made)
            elif isinstance(x, GlobalLoad):
                body += self.element(x, k, self.runs[n], parts[n], frags[x.result.name], at)
            else:
                assert isinstance(x, GlobalStore)
                values[n].append(one.rename.frag(x.value))
        return [one.rename.frag(f) for f in loop.yields]

    def element(
        self, x: GlobalLoad, k: int, runs: Sequence[_Run], parts: Sequence[Frag], result: Frag, at: Expr
    ) -> list[MemOp]:
        """The ops that give ``result`` what ``x`` loads in step ``k`` of an iteration."""
        (run, part), *_ = ((r, f) for r, f in zip(runs, parts, strict=True) if r.first <= k < r.first + self.size)
        place = k - run.first
        start = place if _slope(x, self.loop.var) == 1 else self.size - 1 - place
        axes = {a.name: (0, a.size - 1) for a in result.type.axes}
        wanted = conjunction(tuple(substitute(c, {self.loop.var: at}) for c in run.rest))
        mask = TRUE if wanted is None else simplify(wanted, dict(self.ranges()) | axes)
        if mask == TRUE:
            return [SliceOp(result, part, self.axis, start, x.span)]
        value = self.names.frag(result, "read")
        kind = result.type
        compute = kind.dtype.compute
        chosen, zero = self.typed(result, "chosen", compute), self.typed(result, "zero", compute)
        condition = self.typed(result, "inside", DType.BOOL)
        out: list[MemOp] = [SliceOp(value, part, self.axis, start, x.span)]
        if compute is not kind.dtype:
            wide = self.typed(result, "wide", compute)
            out.append(MapOp(wide, "cast", (value,), x.span))
            value = wide
        else:
            chosen = result
        nothing = False if compute is DType.BOOL else 0.0 if compute.is_float else 0
        out += [ConstOp(zero, nothing, x.span), IndexOp(condition, mask, x.span)]
        out.append(MapOp(chosen, "select", (condition, value, zero), x.span))
        return out if compute is kind.dtype else [*out, MapOp(result, "cast", (chosen,), x.span)]

    def typed(self, f: Frag, suffix: str, dtype: DType) -> Frag:
        """A fragment as ``f`` of another type."""
        return replace(self.names.frag(f, suffix), type=replace(f.type, dtype=dtype))
