"""Groups the shared buffers of TMA loads into multi-stage pipelines and numbers their stages.

A *pipeline* is one or more shared buffers that are filled at the same places and read by the same batch of MMAs.  It
has one state (stage and phase), one pair of mbarriers (``full_X``, ``empty_X``), and the sum of its buffers' bytes.  An
*instance* of a pipeline begins at a *site* (a load of each of its buffers) and ends at the next site of the pipeline in
program order.  Its readers lie between the two sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import ZERO, calc, integer
from nautilus.core.expr.nodes import Expr, Op, Var, free_vars, substitute
from nautilus.core.index.simplify import Ranges, bounds, linear_in, simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import WarpgroupPlan
from nautilus.core.types import DType
from nautilus.ma_tile.ir.async_ops import CONSUMER, AdvanceOp, LetOp, TmaLoad
from nautilus.ma_tile.ir.ops import ForOp, IfOp, MemKernel, MemOp, MmaOp, Smem, TileSchedulerOp, walk_ops
from nautilus.ma_tile.ir.traverse import Ops, deep_touch, rebuild, touch
from nautilus.ma_tile.ir.values import Mbar, PipelineState

_ONE = integer(1)
_NAMED = 3  # buffers of a pipeline whose name has the names of all

Filled = tuple[str, Expr]  # a buffer and the stage of it that a load fills


@dataclass(frozen=True, slots=True)
class TmaPipeline:
    """``depth`` stages of ``buffers``. A buffer in ``apart`` has one part per consumer in each stage.

    A load of such a buffer fills the part of each consumer, or the part of a number, which several consumers may read.
    """

    name: str
    buffers: tuple[str, ...]
    apart: frozenset[str]
    depth: int
    consumers: int
    bytes: int

    @property
    def full(self) -> str:
        """The barrier on which the bytes arrive."""
        return f"full_{self.name}"

    @property
    def empty(self) -> str:
        """The barrier on which readers release a stage."""
        return f"empty_{self.name}"

    @property
    def state(self) -> PipelineState:
        """The state of one side of the pipeline."""
        return PipelineState(self.name, self.depth)

    @property
    def stage(self) -> Expr:
        """The variable of the stage."""
        return Var(self.state.stage)

    @property
    def phase(self) -> Expr:
        """The variable of the phase."""
        return Var(self.state.phase)

    def stage_of(self, buffer: str, consumer: Expr) -> Expr:
        """The stage of ``buffer`` that belongs to ``consumer``, at the current state."""
        if buffer not in self.apart or self.consumers == 1:
            return self.stage
        scaled = calc("mul", self.stage, self.consumers)
        return scaled if consumer == integer(0) else calc("add", scaled, consumer)

    def stages_of(self, buffer: str) -> int:
        """The total number of stages of ``buffer``."""
        return self.depth * (self.consumers if buffer in self.apart else 1)

    def mbars(self, warps: int) -> tuple[Mbar, Mbar]:
        """Both barriers; each of ``warps`` consumer warps releases a stage."""
        return Mbar(self.full, self.depth, 1), Mbar(self.empty, self.depth, warps)


def is_load(op: MemOp, buffers: frozenset[str]) -> bool:
    """``op`` itself fills one of ``buffers``."""
    return isinstance(op, TmaLoad) and op.slot.buffer in buffers


def has_load(op: MemOp, buffers: frozenset[str]) -> bool:
    """``op``, or something inside it, fills one of ``buffers``."""
    return any(is_load(x, buffers) for x in walk_ops((op,)))


def readers(op: MemOp, buffers: frozenset[str]) -> frozenset[str]:
    """Those of ``buffers`` that ``op``, or something inside it, reads."""
    return frozenset(s.buffer for s in deep_touch(op).reads) & buffers


def blocks(body: Ops) -> Iterator[Ops]:
    """Every block of ops, outer ones first."""
    yield body
    for op in body:
        if isinstance(op, ForOp | IfOp | TileSchedulerOp):
            yield from blocks(op.body)


def find_pipelines(kernel: MemKernel, plan: WarpgroupPlan) -> tuple[TmaPipeline, ...]:
    """The pipelines of a kernel's loads, in order of first use. Raises ScheduleError for other uses of stages."""
    order = dict.fromkeys(op.slot.buffer for op in walk_ops(kernel.body) if isinstance(op, TmaLoad))
    smem = {s.name: s for s in kernel.smem}
    apart = frozenset(name for name in order if _per_consumer(kernel, smem[name]))
    groups: list[list[str]] = []
    signature = {name: _signature(kernel.body, smem[name]) for name in order}
    for name in order:
        for group in groups:
            if signature[name] == signature[group[0]] and _joint(kernel.body, frozenset((*group, name))):
                group.append(name)
                break
        else:
            groups.append([name])
    return tuple(_pipeline(kernel, plan, smem, tuple(g), apart & set(g)) for g in groups)


def _pipeline(
    kernel: MemKernel, plan: WarpgroupPlan, smem: dict[str, Smem], buffers: tuple[str, ...], apart: frozenset[str]
) -> TmaPipeline:
    depth = max(1, plan.stages if filled_in_loop(kernel.body, frozenset(buffers)) else plan.resident_stages)
    size = sum(smem[b].stage_bytes * (kernel.consumers if b in apart else 1) for b in buffers)
    return TmaPipeline(_name(buffers), buffers, apart, depth, kernel.consumers, size)


def _name(buffers: tuple[str, ...]) -> str:
    """The names of the buffers; of many, such as the parts of both operands, the first and how many more there are."""
    return "_".join(buffers) if len(buffers) <= _NAMED else f"{buffers[0]}_and_{len(buffers) - 1}_more"


def filled_in_loop(body: Ops, buffers: frozenset[str]) -> bool:
    """Whether a loop fills one of ``buffers``."""
    return any(isinstance(op, ForOp) and any(has_load(x, buffers) for x in op.body) for op in walk_ops(body))


def _per_consumer(kernel: MemKernel, s: Smem) -> bool:
    """Whether each consumer has a stage of ``s`` of its own. Raises ScheduleError for any other use of stages."""
    stages = {x.stage for op in walk_ops(kernel.body) for x in touch(op).all if x.buffer == s.name}
    sources = [op for op in walk_ops(kernel.body) if isinstance(op, TmaLoad) and op.slot.buffer == s.name]
    parts = {integer(n) for n in range(kernel.consumers)}
    filled = {op.slot.stage for op in sources}
    if s.stages == kernel.consumers > 1 and stages <= parts | {Var(CONSUMER)} and filled in (parts, {Var(CONSUMER)}):
        return True
    if stages != {integer(0)} or s.stages != 1:
        detail = f"shared buffer {s.name} has neither one stage nor one stage per consumer"
        raise ScheduleError(detail, kernel=kernel.name)
    if any(CONSUMER in free_vars(e) for op in sources for e in op.index):
        detail = f"all consumers load shared buffer {s.name}, each from an address of its own"
        raise ScheduleError(detail, kernel=kernel.name)
    return False


# -- consumers --------------------------------------------------------------------------------------


def explicit_consumers(body: Ops) -> Ops:
    """Addresses of loads with the variables replaced whose value depends on the consumer."""
    env: dict[str, Expr] = {}
    for op in walk_ops(body):
        if isinstance(op, LetOp):
            e = substitute(op.expr, env)
            if CONSUMER in free_vars(e):
                env[op.var] = e
    if not env:
        return body

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        if not isinstance(op, TmaLoad):
            return (op,)
        return (replace(op, index=tuple(substitute(e, env) for e in op.index)),)

    return rebuild(body, rule)


def at_consumer(e: Expr, env: Mapping[str, Expr]) -> Expr:
    """``e`` for the consumer that ``env`` names; ``base + AXIS`` keeps that form."""
    if CONSUMER not in free_vars(e):
        return e
    match e:
        case Op(op="add", args=(base, Var() as axis)) if axis.name != CONSUMER:
            base = simplify(substitute(base, env))
            return axis if base == integer(0) else replace(e, args=(base, axis))
    return simplify(substitute(e, env))


# -- grouping of buffers ------------------------------------------------------------------------


def _signature(body: Ops, buffer: Smem) -> tuple[tuple[int, int, str], ...]:
    """Where ``buffer`` is filled and read: block, batch (consecutive loads and MMAs), how.

    Vectors, which are small, may stay until all of them are read, so a block is one batch for them, numbered from -1.
    """
    out: list[tuple[int, int, str]] = []
    one, vector = frozenset({buffer.name}), len(buffer.axes) == 1
    for number, block in enumerate(blocks(body)):
        batch = -1 if vector else 0
        for op in block:
            if not isinstance(op, TmaLoad | MmaOp) and not vector:
                batch += 1
            if is_load(op, one):
                out.append((number, batch, "load"))
            elif not isinstance(op, ForOp | IfOp | TileSchedulerOp) and readers(op, one):
                out.append((number, batch, "read"))
    return tuple(sorted(set(out)))


def _filled(load: TmaLoad) -> Filled:
    """What ``load`` fills: a buffer, or a part of it."""
    return load.slot.buffer, load.slot.stage


def _sources(body: Ops, group: frozenset[str]) -> frozenset[Filled]:
    """What the loads of ``group`` in ``body`` fill."""
    return frozenset(_filled(op) for op in walk_ops(body) if isinstance(op, TmaLoad) and op.slot.buffer in group)


def _joint(body: Ops, group: frozenset[str]) -> bool:
    """Whether every site fills all of ``group`` before any of it is read."""
    whole = _sources(body, group)
    for block in blocks(body):
        seen: set[Filled] | None = None
        for op in block:
            if isinstance(op, TmaLoad) and op.slot.buffer in group:
                if seen is not None and seen != whole and _filled(op) in seen:
                    return False
                fresh = seen is None or _filled(op) in seen
                seen = {_filled(op)} if fresh else {*(seen or ()), _filled(op)}
            elif seen is not None and seen != whole:
                names = frozenset(b for b, _ in seen) - frozenset(b for b, _ in whole - seen)
                if not isinstance(op, MmaOp) or not readers(op, group) <= names:
                    return False
            elif has_load(op, group):
                seen = None
        if seen is not None and seen != whole:
            return False
    return True


def sites(block: Ops, pipeline: TmaPipeline) -> Iterator[tuple[int, tuple[TmaLoad, ...]]]:
    """The sites of ``pipeline`` in ``block``: position of the first load, and all loads."""
    mine = frozenset(pipeline.buffers)
    at, loads = 0, list[TmaLoad]()
    whole = len(_sources(block, mine))
    for n, op in enumerate(block):
        if isinstance(op, TmaLoad) and op.slot.buffer in mine:
            at = n if not loads else at
            loads.append(op)
            if len(loads) == whole:
                yield at, tuple(loads)
                loads = []


def unique_names(taken: Sequence[str], pipelines: tuple[TmaPipeline, ...]) -> str | None:
    """A name of a pipeline's barriers or state that is already in use, if there is one."""
    used = set(taken)
    for r in pipelines:
        for name in (r.full, r.empty, r.state.stage, r.state.phase):
            if name in used:
                return name
            used.add(name)
    return None


# -- numbers of instances -------------------------------------------------------------------------


def instances(body: Ops, pipeline: str, ranges: Ranges, loop: ForOp | None = None) -> Expr:
    """The stages by which ``body`` advances the state ``pipeline``, in all iterations of ``loop`` if one is given.

    The result is right only if it mentions no variable of a loop.
    """
    total: Expr = ZERO
    for op in body:
        match op:
            case AdvanceOp(pipeline=name, by=by) if name == pipeline:
                total = calc("add", total, _often(by or _ONE, ranges, loop))
            case IfOp(cond=cond, body=inner) if _moves(inner, pipeline):
                part = None if loop is None else narrowed(loop, cond)
                if part is None:
                    total = calc("add", total, calc("select", cond, instances(inner, pipeline, ranges, loop), ZERO))
                else:
                    total = calc("add", total, instances(inner, pipeline, ranges, part))
            case ForOp(body=inner) if _moves(inner, pipeline):
                total = calc("add", total, _often(instances(inner, pipeline, ranges, op), ranges, loop))
    return total


def _often(e: Expr, ranges: Ranges, loop: ForOp | None) -> Expr:
    """The sum of ``e`` over the iterations of ``loop``."""
    if loop is None:
        return e
    trips = simplify(calc("sub", loop.hi, loop.lo), ranges)
    least = bounds(trips, ranges)[0]
    return calc("mul", trips if least is not None and least >= 0 else calc("max", trips, ZERO), e)


def narrowed(loop: ForOp, cond: Expr) -> ForOp | None:
    """``loop`` over the iterations where ``cond`` holds; None unless ``cond`` is one bound on its variable."""
    match cond:
        case Op(op="ge" | "gt" | "lt" | "le" as name, args=(a, b)) if a.dtype is DType.I32:
            gap = linear_in(calc("sub", a, b), loop.var)  # c * var + rest: compared with 0
        case _:
            return None
    if gap is None or abs(gap[0]) != 1:
        return None
    c, rest = gap
    lower = (name in ("ge", "gt")) == (c == 1)  # the condition bounds the variable from below
    edge = rest if c == -1 else calc("sub", ZERO, rest)  # where both sides are equal
    if lower:
        least = edge if name in ("ge", "le") else calc("add", edge, _ONE)
        return replace(loop, lo=simplify(calc("max", loop.lo, least)))
    most = edge if name in ("lt", "gt") else calc("add", edge, _ONE)
    return replace(loop, hi=simplify(calc("min", loop.hi, most)))


def _moves(body: Ops, pipeline: str) -> bool:
    return any(isinstance(op, AdvanceOp) and op.pipeline == pipeline for op in walk_ops(body))
