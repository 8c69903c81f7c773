"""The traversal of one kernel by the verifier: what is in scope, and the rules that several ops share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, NoReturn

from nautilus.core.buffers import Buffer
from nautilus.core.errors import TargetLimitError
from nautilus.core.expr.infer import DTypeError, result_dtype
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Ref, Var, loads, walk
from nautilus.core.index.divisors import divisible_by
from nautilus.core.records import dataclass
from nautilus.core.text.names import repeated
from nautilus.core.tiles import TileType
from nautilus.core.types import INDEX_TYPES, DType
from nautilus.ma_tile.analysis.access import RefAxes
from nautilus.ma_tile.analysis.repeated_values import fragment_runs
from nautilus.ma_tile.ir.async_ops import CONSUMER, AdvanceOp, LetOp, MbarExpect, TmaCommit, TmaLoad, TmaStore, TmaWait
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import (
    ForOp,
    Frag,
    IfOp,
    Mbar,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    PipelineState,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.tile_scheduler import (
    BreakOp,
    QueuePop,
    QueuePush,
    TileFetch,
    TileFirst,
    TileReset,
    TileSchedulerOp,
)
from nautilus.ma_tile.ir.traverse import stored
from nautilus.ma_tile.text import format_op
from nautilus.ma_tile.verify import LEVEL, reject
from nautilus.ma_tile.verify.cluster import check_cluster, check_packed, check_spread, check_team
from nautilus.ma_tile.verify.layout import cover_fault, is_projection, layout_fault
from nautilus.ma_tile.verify.mbarriers import check_mbarriers
from nautilus.ma_tile.verify.outstanding import check_async
from nautilus.ma_tile.verify.shared import check_smem
from nautilus.targets.limits import Limits

#: ops that a single thread may execute
_SINGLE = (
    IfOp, ForOp, LetOp, AdvanceOp, TileSchedulerOp, MbarArrive, MbarWait, MbarExpect, TmaLoad, TmaStore, TmaCommit,
    TmaWait, BreakOp, TileFirst, TileFetch, TileReset, QueuePush, QueuePop,
)  # fmt: skip


def unique(rule: str, names: Iterable[str], node: str) -> None:
    """Raise VerifyError where a name occurs twice."""
    if (twice := repeated(names)) is not None:
        reject(rule, node, f"{twice} occurs twice")


@dataclass
class KernelScope:
    """The state of the traversal of one kernel: its definitions in scope, and the current role.

    ``warps``: number of warps of one consumer; ``first``: its first warp; ``single``: one thread runs the body;
    ``types``: types of the variables that ``let`` ops define (all others are i32); ``path``: classes of the enclosing
    structured ops; ``rules``: op class -> its rule.
    """

    module: MemModule
    kernel: MemKernel
    target: Limits
    rules: Mapping[type, Rule]
    warps: int = 0
    consumers: int = 1
    first: int = 0
    single: bool = False
    role: str | None = None
    vars: set[str] = field(default_factory=set)
    types: dict[str, DType] = field(default_factory=dict)
    path: tuple[type, ...] = ()
    axes: frozenset[str] = frozenset()
    frags: dict[str, Frag] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    op: MemOp | None = None
    lets: dict[str, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.smem: Mapping[str, Smem] = {s.name: s for s in self.kernel.smem}
        self.mbars: Mapping[str, Mbar] = {b.name: b for b in self.kernel.mbars}
        self.params: Mapping[str, DType] = {p.name: p.dtype for p in self.module.params}
        self.buffers: Mapping[str, Buffer] = {b.name: b for b in self.module.buffers}
        self.pipelines: Mapping[str, PipelineState] = {c.name: c for c in self.kernel.pipelines}
        self.arrivals: dict[str, set[bool]] = {}  # on each mbarrier: whether they come from the cluster
        self.leave_roles()

    @cached_property
    def runs(self) -> RefAxes:
        """Along each axis of a fragment, the length of the runs with one element."""
        return fragment_runs(self.kernel.body)

    @cached_property
    def before(self) -> Mapping[str, int]:
        """The ranks of the tensors that stand there before the kernel."""
        own = stored(walk_ops(self.kernel.body))
        return {b.name: len(b.shape) for b in self.module.buffers if b.name not in own}

    def leave_roles(self) -> None:
        """Reset the state to the code outside of roles."""
        self.role, self.single, self.first = None, False, 0
        self.consumers, self.warps = self.kernel.consumers, self.kernel.warps // max(self.kernel.consumers, 1)

    def check(self) -> None:
        """Check the kernel. Raises VerifyError."""
        k, node = self.kernel, f"kernel {self.kernel.name}"
        if not 1 <= k.threads <= self.target.threads_block:
            detail = f"{k.threads} of at most {self.target.threads_block}"
            raise TargetLimitError(LEVEL, "threads of a block", k.name, detail, k.span)
        if k.min_blocks < 1:
            raise TargetLimitError(LEVEL, "threads of a block", k.name, f"min_blocks is {k.min_blocks}", k.span)
        names = [*(s.name for s in k.smem), *(b.name for b in k.mbars)]
        unique("a name denotes one shared buffer or mbarrier", names, node)
        ok = k.consumers >= 1 and k.warps % max(k.consumers, 1) == 0
        self.need(ok, "consumers are equal parts of whole warps", f"{k.consumers} consumers of {k.warps} warps")
        self._cluster()
        for name, layout in k.layouts.items():
            if fault := layout_fault(layout):
                reject("a layout holds each element once", f"#{name} = {layout}", fault, k.span)
        for self.op in walk_ops(k.body):
            if isinstance(self.op, MbarArrive):
                self.arrivals.setdefault(self.op.mbar, set()).add(self.op.cluster)
            if type(self.op) not in self.rules:
                self.fail("known operations", f"no rule for {type(self.op).__name__}")
        self.op = None
        check_smem(k, self.target)
        self.uniform(k.blocks, "the grid")
        self.axes = frozenset(x for layout in k.layouts.values() for x in layout.axes)
        self.vars = {"block"}
        for name, e in k.decode:
            self.uniform(e, f"let {name}", reads=True)
            self.need(name not in self.axes, "variables are no tile axes", name)
            self.vars.add(name)
        self._pipelines()
        self.block(k.body)
        check_async(k)
        check_cluster(k)
        check_spread(k, self.target)
        check_packed(k)
        check_team(k)
        check_mbarriers(k)

    def _cluster(self) -> None:
        k = self.kernel
        ok = k.cluster == 1 or (self.target.warpgroup and k.cluster in (2, 4, 8))
        self.need(ok, "clusters have 2, 4 or 8 blocks of a target that has them", str(k.cluster))
        whole = divisible_by(k.blocks, k.cluster)
        self.need(whole, "clusters are full", f"{k.cluster} in a grid that is no multiple of it")

    def _pipelines(self) -> None:
        """Declare the variables that every consumer has at the start."""
        names = [CONSUMER, *(v for c in self.kernel.pipelines for v in (c.stage, c.phase))]
        unique("a name denotes one variable", [*self.vars, *names], f"kernel {self.kernel.name}")
        for c in self.kernel.pipelines:
            self.need(c.stages >= 1, "pipelines have stages", c.name)
        self.vars.update(names)

    # -- failing ------------------------------------------------------------------------------
    def fail(self, rule: str, detail: str) -> NoReturn:
        """Raise the VerifyError of the current op."""
        if self.op is None:
            reject(rule, f"kernel {self.kernel.name}", detail, self.kernel.span)
        node = format_op(self.op) if type(self.op) in self.rules else repr(self.op)
        reject(rule, node, detail, self.op.span)

    def need(self, ok: bool, rule: str, detail: str) -> None:
        """Fail unless ``ok``."""
        if not ok:
            self.fail(rule, detail)

    # -- traversal ----------------------------------------------------------------------------
    def block(self, body: tuple[MemOp, ...]) -> None:
        """Check the ops of ``body`` in order."""
        for op in body:
            self.op = op
            if self.single and not isinstance(op, _SINGLE):
                self.fail("a single role has no fragments and no thread barriers", f"role {self.role} is single")
            self.rules[type(op)](self, op)

    def nested(self, body: tuple[MemOp, ...], op: MemOp, inner: Callable[[], None] | None = None) -> None:
        """Check an inner block and run ``inner`` at its end; definitions in it do not leave it."""
        frags, variables, types, path = dict(self.frags), set(self.vars), dict(self.types), self.path
        lets = dict(self.lets)
        self.path = (*path, type(op))
        self.block(body)
        self.op, self.path = op, path
        if inner is not None:
            inner()
        self.frags, self.vars, self.types = frags, variables, types
        self.lets = lets

    def variable(self, name: str, dtype: DType = DType.I32) -> None:
        """Define a variable that is in scope to the end of the block."""
        self.need(name not in self.vars, "variables do not shadow", name)
        self.need(name not in self.axes, "variables are no tile axes", name)
        self.vars.add(name)
        self.types[name] = dtype

    # -- fragments ----------------------------------------------------------------------------
    def layout(self, name: str) -> FragLayout:
        """The kernel's layout ``name``, if it is of this role."""
        found = self.kernel.layouts.get(name)
        if found is None:
            self.fail("layouts are declared", f"no layout is called #{name}")
        if found.warps != self.warps:
            self.fail("layouts fit the role", f"#{name} has {found.warps} warps, not {self.warps}")
        return found

    def define(self, frag: Frag) -> FragLayout:
        """Define a fragment; it has one definition and a layout that covers its tile."""
        if frag.name in self.names:
            self.fail("a fragment has one definition", f"%{frag.name} is defined twice")
        axes = [a.name for a in frag.type.axes]
        if len(set(axes)) != len(axes) or any(a.size < 1 for a in frag.type.axes):
            self.fail("tiles have named axes", f"%{frag.name} has axes {axes}")
        layout = self.layout(frag.layout)
        if fault := cover_fault(layout, frag.type):
            self.fail("layouts cover their tiles", f"%{frag.name}: {fault}")
        self.names.add(frag.name)
        self.frags[frag.name] = frag
        return layout

    def use(self, frag: Frag) -> FragLayout:
        """The layout of a fragment that is in scope with the same type and layout."""
        found = self.frags.get(frag.name)
        if found is None:
            self.fail("definitions before uses", f"%{frag.name} is not defined here")
        if found is not frag and (found.type != frag.type or found.layout != frag.layout):
            self.fail("uses agree with definitions", f"%{frag.name} has another type or layout")
        return self.layout(frag.layout)

    def projected(self, layout: FragLayout, frag: Frag) -> None:
        """Check that the layout of ``frag`` is the projection of ``layout`` to its axes."""
        own = self.use(frag)
        if not is_projection(own, layout, frag.type.names):
            self.fail("operands are projections", f"%{frag.name} is not in the projection of the result's layout")

    # -- expressions --------------------------------------------------------------------------
    def uniform(self, e: Expr, what: str, *, reads: bool = False) -> None:
        """An integer that is the same in a whole tile; ``reads``: it may read what stands there before the kernel."""
        self.typed(e, what, INDEX_TYPES, None, (), self.before if reads and loads(e) else {})

    def typed(
        self, e: Expr, what: str, types: Collection[DType], layout: FragLayout | None, axes: tuple[str, ...],
        readable: Mapping[str, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """``e`` is well typed, of one of ``types``, and mentions only what is in scope.

        ``readable``: the ranks of the tensors of which it may read elements.
        """
        fault, leaves = _typing(e)
        if fault:
            self.fail("expressions are typed", f"{what}: {fault}")
        for n in leaves:
            match n:
                case Load(buffer=name, index=index) if readable.get(name) == len(index):
                    pass
                case Load() | Reduce():
                    self.fail("expressions are of variables", f"{what} contains a load or a reduction")
                case Var(name=name, dtype=dtype):
                    if name not in self.vars and name not in axes:
                        self.fail("variables are in scope", f"{what} mentions {name}")
                    if name not in axes and self.types.get(name, dtype) is not dtype:
                        self.fail("variables keep their type", f"{what} mentions {name} as {dtype}")
                case Param(name=name, dtype=dtype):
                    self.need(self.params.get(name) is dtype, "params are declared", f"{what} mentions {name}")
                case Ref(name=name, dtype=dtype):
                    self._ref(name, dtype, what, layout)
        if e.dtype not in types:
            self.fail("expressions are typed", f"{what} is {e.dtype}")

    def _ref(self, name: str, dtype: DType, what: str, layout: FragLayout | None) -> None:
        frag = self.frags.get(name)
        if frag is None or frag.type.dtype is not dtype:
            self.fail("definitions before uses", f"{what} mentions %{name}")
        if layout is None:
            single = all(a.size == 1 for a in frag.type.axes)
            self.need(single, "block-uniform expressions", f"{what} mentions %{name}, which varies")
            return
        self.projected(layout, frag)

    # -- memory -------------------------------------------------------------------------------
    def slot(self, slot: Slot) -> Smem:
        """The buffer of a stage; the slot has the swizzle of the buffer."""
        buffer = self.smem.get(slot.buffer)
        if buffer is None:
            self.fail("shared buffers are declared", f"no shared buffer is called {slot.buffer}")
        if slot.swizzle != buffer.swizzle:
            self.fail("an access has its buffer's swizzle", f"{slot.swizzle}, not {buffer.swizzle}")
        self.stage(slot.stage, buffer.stages, buffer.name)
        return buffer

    def stage(self, e: Expr, stages: int, name: str) -> None:
        """Check that a constant stage number is below ``stages``."""
        self.uniform(e, f"the stage of {name}")
        if isinstance(e, Const):
            inside = 0 <= int(e.value) < stages
            self.need(inside, "stages lie inside their buffer or mbarrier", f"{e.value} of {stages} of {name}")

    def mbar(self, name: str, stage: Expr) -> Mbar:
        """The declared mbarrier ``name``; checks its stage."""
        found = self.mbars.get(name)
        if found is None:
            self.fail("mbarriers are declared", f"no mbarrier is called {name}")
        self.stage(stage, found.stages, name)
        pipeline = next((c for c in self.pipelines.values() if stage == Var(c.stage)), None)
        if pipeline is not None:
            detail = f"{found.stages} of {name}, {pipeline.stages} of {pipeline.name}"
            self.need(found.stages == pipeline.stages, "a pipeline has the stages of its mbarriers", detail)
        return found

    def access(self, name: str, index: tuple[Expr, ...], mask: Expr | None, layout: FragLayout, t: TileType) -> Buffer:
        """A global access: declared buffer, one integer a dimension, a bool mask."""
        buffer = self.buffers.get(name)
        if buffer is None:
            self.fail("buffers are declared", f"no buffer is called {name}")
        rank = len(buffer.shape)
        found = f"{name} has {rank} dimensions, not {len(index)}"
        self.need(len(index) == rank, "an access has one index for each dimension", found)
        for e in index:
            self.typed(e, f"an index of {name}", INDEX_TYPES, layout, t.names)
        if mask is not None:
            self.typed(mask, "the mask", (DType.BOOL,), layout, t.names)
        return buffer


@lru_cache(maxsize=1 << 14)  # every pass leaves most expressions as they are
def _typing(e: Expr) -> tuple[str, tuple[Expr, ...]]:
    """Which operation in ``e`` has another type than it says, empty for none; and what depends on the scope."""
    leaves = list[Expr]()
    for n in walk(e):
        if isinstance(n, Op):
            try:
                if result_dtype(n.op, [a.dtype for a in n.args], n.dtype) is not n.dtype:
                    return f"{n.op} does not give {n.dtype}", ()
            except DTypeError as err:
                return str(err), ()
        elif not isinstance(n, Const):
            leaves.append(n)
    return "", tuple(leaves)


Rule = Callable[[KernelScope, Any], None]
