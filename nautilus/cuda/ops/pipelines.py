"""Printing of TMA copies, mbarriers and pipelines.

One thread issues copies and ``mbarrier.expect_tx``: the only thread of a ``single`` role, else thread 0 of the
consumer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars
from nautilus.core.index.simplify import simplify
from nautilus.core.types import DType
from nautilus.cuda.expr import PRODUCT, SUM, operand
from nautilus.cuda.ops.movement import slot_offset
from nautilus.cuda.tensor_maps import Copy, copy_of
from nautilus.cuda.writer import Printers, Writer, calls
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import GROUP_WARPS
from nautilus.ma_tile.ir.traverse import expressions
from nautilus.ma_tile.rewriting.named_barriers import TEAM_WORDS

MBARRIER = 8  # bytes


def declare_pipeline_states(w: Writer, body: tuple[ma.MemOp, ...]) -> None:
    """Declare the pipeline states that ``body`` reads; each consumer has its own.

    A phase that no wait reads is not declared.
    """
    read = set[str]().union(*(free_vars(e) for op in ma.walk_ops(body) for e in expressions(op)))
    for c in w.kernel.pipelines:
        if read & {c.stage, c.phase}:
            for var, high, ctype in ((c.stage, c.stages - 1, "int"), (c.phase, 1, "u32")):
                w.ranges[var] = (0, high)
                w.env.pop(var, None)  # of another role
                if not high:
                    w.env[var] = "0"
                elif var == c.stage or var in read:
                    w.env[var] = w.unique(var)
                    w.line(f"{ctype} {w.env[var]} = 0;")


def print_advance(w: Writer, op: ma.AdvanceOp) -> None:
    """Advance a pipeline; the phase flips when the stage wraps around to 0."""
    c = next(c for c in w.kernel.pipelines if c.name == op.pipeline)
    stage, phase = w.env.get(c.stage), w.env.get(c.phase)
    if stage is None:
        return
    if c.stages == 1:
        if phase:
            w.line(f"{phase} ^= {'1' if op.by is None else f'({w.expr(op.by)}) & 1'};")
    elif op.by is not None:
        w.line(f"{stage} += {w.expr(op.by)};")
        if phase:
            w.line(f"{phase} ^= {stage} / {c.stages} & 1;")
        w.line(f"{stage} %= {c.stages};")
    elif phase:
        with w.braces(f"if (++{stage} == {c.stages})"):
            w.line(f"{stage} = 0;")
            w.line(f"{phase} ^= 1;")
    else:
        w.line(f"if (++{stage} == {c.stages}) {stage} = 0;")


@contextmanager
def issuing(w: Writer) -> Iterator[None]:
    """A block that one thread of the consumer executes, or of the block where there are no consumers."""
    if w.single:
        yield
        return
    warps = w.consumer_warps or max(GROUP_WARPS, w.kernel.warps)
    with w.braces(f"if (threadIdx.x % {32 * warps} == 0)"):
        yield


def barrier_address(w: Writer, name: str, stage: Expr) -> str:
    """Shared address of the mbarrier of ``stage``."""
    bar = next(b for b in w.kernel.mbars if b.name == name)
    base, stage = w.constant(f"{bar.name}_at", bar.offset), simplify(stage, w.ranges)
    if isinstance(stage, Const):
        return f"{w.shared} + {base}" + (f" + {int(stage.value) * MBARRIER}" if stage.value else "")
    return f"{w.shared} + {base} + {operand(w.expr(stage), PRODUCT)} * {MBARRIER}"


def print_wait(w: Writer, op: ma.MbarWait) -> None:
    """Wait for a phase."""
    call = w.speller.use("mbarrier_wait")
    w.line(f"{call}({barrier_address(w, op.mbar, op.stage)}, {w.expr(op.parity)});")


def print_arrive(w: Writer, op: ma.MbarArrive) -> None:
    """Each thread arrives, or one lane of each warp after ``__syncwarp``."""
    call = f"{w.speller.use('mbarrier_arrive')}({barrier_address(w, op.mbar, op.stage)});"
    if op.cluster:
        _arrive_everywhere(w, op)
    elif op.each == "warp" and not w.single:
        w.line("__syncwarp();")
        with w.braces(f"if ({w.lane} == 0)"):
            w.line(call)
    else:
        w.line(call)


def _arrive_everywhere(w: Writer, op: ma.MbarArrive) -> None:
    """Arrive at the barriers of all blocks of the cluster; in a warp, each lane arrives at one block."""
    call, address = w.speller.use("mbarrier_arrive_at"), barrier_address(w, op.mbar, op.stage)
    if op.each == "warp" and not w.single:
        w.line("__syncwarp();")
        with w.braces(f"if ({w.lane} < {w.kernel.cluster})"):
            w.line(f"{call}({address}, {w.lane});")
        return
    for rank in range(w.kernel.cluster):
        w.line(f"{call}({address}, {rank});")


def print_expect(w: Writer, op: ma.MbarExpect) -> None:
    """Print the arrival that expects bytes of TMA loads."""
    with issuing(w):
        w.line(f"{w.speller.use('mbarrier_expect')}({barrier_address(w, op.mbar, op.stage)}, {op.bytes});")


def print_load(w: Writer, op: ma.TmaLoad) -> None:
    """Print one instruction for each slab."""
    assert op.mbar is not None, "synchronous TMA loads are replaced before CUDA C++"
    copy = copy_of(w.module, w.kernel, op)
    if op.multicast > 1:
        _print_multicast(w, op, copy, op.mbar)
        return
    call = w.speller.use(f"tma_load_{len(copy.origin)}d")
    with issuing(w):
        bar = barrier_address(w, *op.mbar)
        for slab, step in enumerate(copy.steps):
            at = f"{w.shared} + {slot_offset(w, op.slot)}{_more(slab * copy.slab_bytes)}"
            where = _coordinates(w, copy.origin, step)
            w.line(f"{call}({at}, &{w.env['&' + copy.map.name]}, {bar}, {where});")


def _print_multicast(w: Writer, op: ma.TmaLoad, copy: Copy, mbar: tuple[str, Expr]) -> None:
    """Copy the part of this block to all blocks of the cluster."""
    call = w.speller.use(f"tma_load_{len(copy.origin)}d_multicast")
    mask = (1 << op.multicast) - 1
    rank = Op("mod", (Var("block"), Const(op.multicast, DType.I32)), DType.I32)
    with issuing(w):
        bar, name = barrier_address(w, *mbar), f"&{w.env['&' + copy.map.name]}"
        here = operand(w.expr(rank), PRODUCT)
        for slab, step in enumerate(copy.steps):
            slot = f"{slot_offset(w, op.slot)}{_more(slab * copy.slab_bytes)}"
            at = f"{w.shared} + {slot} + {here} * {copy.part_bytes}"
            where = _coordinates(w, copy.origin, step, (copy.part_axis, f"{here} * {copy.part_size}"))
            w.line(f"{call}({at}, {name}, {bar}, {where}, {mask});")


def print_store(w: Writer, op: ma.TmaStore) -> None:
    """Print one instruction for each slab."""
    copy = copy_of(w.module, w.kernel, op)
    call = w.speller.use(f"tma_store_{len(copy.origin)}d")
    with issuing(w):
        for slab, step in enumerate(copy.steps):
            at = f"{w.shared} + {slot_offset(w, op.slot)}{_more(slab * copy.slab_bytes)}"
            where = _coordinates(w, copy.origin, step)
            w.line(f"{call}(&{w.env['&' + copy.map.name]}, {at}, {where});")


def _more(offset: int) -> str:
    return f" + {offset}" if offset else ""


def print_commit(w: Writer, op: ma.TmaCommit) -> None:
    """Close the group of stores of the issuing thread."""
    with issuing(w):
        w.line(f"{w.speller.use('tma_commit')}();")


def print_store_wait(w: Writer, op: ma.TmaWait) -> None:
    """Wait for TMA stores in the thread that issued them."""
    with issuing(w):
        w.line(f"{w.speller.use('tma_wait_read' if op.read else 'tma_wait')}<{op.pending}>();")


def print_named_arrive(w: Writer, op: ma.NamedArrive) -> None:
    """Arrive at a named barrier without waiting."""
    w.line(f"{w.speller.use('named_arrive')}({w.expr(op.number)}, {op.threads});")


def _coordinates(
    w: Writer, origin: tuple[Expr, ...], step: tuple[int, ...], part: tuple[int, str] | None = None
) -> str:
    texts = [w.expr(e) for e in origin]
    for axis, more in (*((n, str(by) if by else "") for n, by in enumerate(step)), part or (0, "")):
        if more:
            texts[axis] = more if texts[axis] == "0" else f"{operand(texts[axis], SUM)} + {more}"
    return ", ".join(texts)


def print_init(w: Writer, op: ma.MbarInit) -> None:
    """Thread 0 initialises all mbarriers."""
    init = w.speller.use("mbarrier_init")
    with w.braces("if (threadIdx.x == 0)"):
        for bar in w.kernel.mbars:
            for stage in range(bar.stages):
                w.line(f"{init}({barrier_address(w, bar.name, integer(stage))}, {bar.arrivals});")
        w.line(f"{w.speller.use('fence_mbarrier_init')}();")


def print_cluster_arrive(w: Writer, op: ma.ClusterArrive) -> None:
    """Arrive at the barrier of the cluster."""
    w.line(f"{w.speller.use('cluster_arrive_relaxed' if op.relaxed else 'cluster_arrive')}();")


def print_barrier(w: Writer, op: ma.Barrier) -> None:
    """A barrier of the block, or of the cluster that it is spread over; of one warp; of whole warps by its number.

    One of a team counts the arrivals of its blocks; that of the first block makes the sum of all of them 2^31.
    """
    match op.threads:
        case None if op.team:
            n, block = w.kernel.team, w.block
            place = f"{w.env['&' + w.kernel.arrivals]} + {block} / {n} * {TEAM_WORDS}"
            arrival = f"{block} % {n} ? 1u : 0x80000000u - {n - 1}u"
            w.line(f"{w.speller.use('team_barrier')}({place}, {arrival}, {w.value('team_phase')});")
        case None if w.kernel.spread > 1:
            w.line(f"{w.speller.use('cluster_arrive')}();")
            w.line(f"{w.speller.use('cluster_wait')}();")
        case None:
            w.line("__syncthreads();")
        case 32:  # the verifier admits whole warps of at least one consumer
            w.line("__syncwarp();")
        case threads:
            w.line(f"{w.speller.use('named_barrier')}({w.expr(op.number)}, {threads});")


def map_parameters(w: Writer, names: tuple[str, ...]) -> list[str]:
    """C parameters of tensor maps. ``__grid_constant__``: TMA reads them from parameter memory, not from a copy."""
    out = []
    for name in names:
        w.env["&" + name] = w.unique(name)
        w.speller.use("tensor_map")
        out.append(f"const __grid_constant__ TensorMap {w.env['&' + name]}")
    return out


#: op class -> what prints it
PRINTERS: Printers = {
    ma.AdvanceOp: print_advance,
    ma.TmaLoad: print_load,
    ma.TmaStore: print_store,
    ma.TmaCommit: print_commit,
    ma.TmaWait: print_store_wait,
    ma.MbarInit: print_init,
    ma.MbarExpect: print_expect,
    ma.MbarArrive: print_arrive,
    ma.MbarWait: print_wait,
    ma.Barrier: print_barrier,
    ma.NamedArrive: print_named_arrive,
    ma.ProxyFence: calls("fence_proxy"),
    ma.ClusterArrive: print_cluster_arrive,
    ma.ClusterWait: calls("cluster_wait"),
    ma.GridWait: calls("grid_wait"),
    ma.GridLaunchDependents: calls("launch_dependents"),
}
