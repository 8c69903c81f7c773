"""MA-tile IR to CUDA C++ in one readable file. The emitter makes no scheduling decisions.

The file holds a header comment, the device helpers that its kernels use, the kernels in launch
order, and, for a host compiler only (``#ifndef __CUDACC_RTC__``), an ``extern "C"`` launcher.  Everything but the
functions of the launcher is in a namespace, so that several files link into one program and compile in one unit.
Fragments are C arrays whose loops unroll completely; shared memory is one dynamic array, addressed
by the byte offsets that the MA-tile IR fixed.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import get_args

from nautilus.core.buffers import Space
from nautilus.core.errors import UnsupportedError, in_kernel
from nautilus.core.expr.nodes import Const
from nautilus.core.index import simplify as index
from nautilus.core.index.divisors import divisible_by
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal, memory_type, scalar_type
from nautilus.cuda.expr import SUM, Speller, operand
from nautilus.cuda.host.capacity import device_sizes, hosted
from nautilus.cuda.host.choice import Choice, host_part
from nautilus.cuda.intrinsics import render
from nautilus.cuda.names import kernel_symbol, module_names
from nautilus.cuda.ops import elementwise, movement, pipelines, reduction, roles, stores, unpack
from nautilus.cuda.ops import mma as matrix
from nautilus.cuda.ops import tile_scheduler as scheduler
from nautilus.cuda.ops import wgmma as warpgroup
from nautilus.cuda.ops.mma_parts import print_parts
from nautilus.cuda.ops.scans import scan
from nautilus.cuda.registers import thread_base
from nautilus.cuda.tensor_maps import kernel_maps
from nautilus.cuda.text.statements import Definition, Statements
from nautilus.cuda.writer import Printers, Writer, axis_ranges
from nautilus.ma_tile.analysis.consumers import has_warpgroups
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import CONSUMER
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA
from nautilus.ma_tile.ir.layout import same_threads
from nautilus.ma_tile.ir.traverse import bound, exchanged
from nautilus.ma_tile.ir.values import MA
from nautilus.targets.limits import limits

NONE = Statements()
_NO_STATEMENT = (ma.ForOp, ma.IfOp, ma.RolesOp, ma.TileSchedulerOp, ma.ConstOp)  # no part of one statement


def emit_module(module: ma.MemModule, statements: Statements = NONE) -> str:
    """The ``.cu`` text without its leading comment. Raises UnsupportedError."""
    return whole_text([device_part(module, statements)], host_part(Choice.of(module)))


def whole_text(devices: Sequence[str], host: str) -> str:
    """The device parts of all modules, and the host part."""
    return "\n".join(p for p in (*devices, host) if p)


def device_part(
    module: ma.MemModule, statements: Statements = NONE, only: Sequence[ma.MemKernel] | None = None
) -> str:  # fmt: skip
    """The namespace of a module with its kernels and the helpers that they call. Raises UnsupportedError.

    ``only``: some of its kernels.
    """
    for b in module.buffers:
        if b.dtype.is_float8 and not limits(module.target).float8:
            raise UnsupportedError(f"8-bit floating point ({b.dtype}) on {module.target}", b.name, b.span)
    helpers: set[str] = set()
    kernels: list[str] = []
    for kernel in module.kernels if only is None else only:
        text, used = _printed(module, kernel, statements.all)
        kernels.append(text)
        helpers |= used
    opening, closing = f"namespace {module_names(module).namespace} {{\n", "}  // namespace\n"
    return "\n".join(p for p in (opening, render(helpers), *kernels, closing) if p)


@by_identity(16)  # ptxas sees kernels before they are printed with all others
def _printed(
    module: ma.MemModule, kernel: ma.MemKernel, statements: tuple[Definition, ...]
) -> tuple[str, frozenset[str]]:  # fmt: skip
    """The text of a kernel and the helpers that it calls."""
    speller = Speller()
    with in_kernel(kernel.name):
        text = emit_kernel(module, kernel, speller, Statements(statements))
    return text, frozenset(speller.helpers)


def emit_kernel(module: ma.MemModule, kernel: ma.MemKernel, speller: Speller, statements: Statements = NONE) -> str:
    """The text of ``kernel`` as one ``__global__`` function, with comments of ``statements`` of the spec.

    Raises UnsupportedError.
    """
    if kernel.mbars and not any(isinstance(op, ma.MbarInit) for op in kernel.body):
        raise UnsupportedError("mbarriers without mbar.init", kernel.name, kernel.span)
    w = start(module, kernel, speller, statements)
    clamped = _device_sizes(module, kernel, w)
    decode: dict[str, tuple[str, set[str]]] = {}
    for var, e in kernel.decode:
        with speller.mentions() as names:
            text = w.expr(e)
        w.env[var] = text if text.isdigit() else w.unique(var)
        if not text.isdigit():
            decode[w.env[var]] = text, names
    maps = pipelines.map_parameters(w, tuple(m.name for m in kernel_maps(module, kernel)))
    if w.consumer_warps:
        if kernel.consumers > 1:
            roles.bind_consumer(w, 0, kernel.consumers)
            pipelines.declare_pipeline_states(w, kernel.body)
    else:
        w.env.setdefault(CONSUMER, "0")  # the only one
        w.ranges.setdefault(CONSUMER, (0, 0))
        pipelines.declare_pipeline_states(w, kernel.body)
    scratch = [op for op in ma.walk_ops(kernel.body) if isinstance(op, ma.GlobalStore) and op.scratch is not None]
    if scratch:
        stores.print_block_start(w, scratch)
    print_body(w, kernel.body)
    if scratch:
        stores.print_block_end(w, scratch)
    bases = [
        f"    const int {name} = {thread_base(w.all_layouts[layout], axis)};"
        for (layout, axis), name in w.bases.items()
        if name != "0" and name in speller.mentioned
    ] + [f"    const int {name} = {text};" for name, text in w.warp_bases.items()]
    w.lines[:0] = [*_decode(w, decode), *bases]
    _name_infinity(w)
    bound = f"__launch_bounds__({kernel.threads}, {kernel.min_blocks})"
    if (together := max(kernel.cluster, kernel.spread)) > 1:
        bound += f" __cluster_dims__({together}, 1, 1)"
    w.lines[:0] = clamped
    counter = [f"u32* {scheduler.COUNTER}"] if scheduler.uses_counter(kernel) else []
    shared = exchanged(kernel.body) if kernel.team > 1 else frozenset[str]()
    signature = ", ".join([*parameters(hosted(module), shared), *maps, *counter])
    head = f'extern "C" __global__ void {bound}\n{kernel_symbol(module, kernel)}({signature}) {{'
    return "\n".join([head, *_prologue(kernel, w), *w.lines, "}", ""])


def _device_sizes(module: ma.MemModule, kernel: ma.MemKernel, w: Writer) -> list[str]:
    """Lines that read the sizes in device memory, and end the blocks beyond the grid that they give."""
    lines = list[str]()
    for name, most in device_sizes(module).items():
        at, w.env[name] = w.env[name], w.unique(f"{name}_now")
        lines.append(f"    const int {w.env[name]} = min(max(*{at}, 0), {most});")
    blocks = hosted(replace(module, kernels=(kernel,))).kernels[0].blocks
    if blocks != kernel.blocks:
        lines.append(f"    if (blockIdx.x >= {w.expr(kernel.launched)}) return;")
    return lines


def _decode(w: Writer, values: dict[str, tuple[str, set[str]]]) -> list[str]:
    """Declarations of the grid variables that the kernel or a later one of them uses."""
    lines: list[str] = []
    for name, (text, mentioned) in reversed(values.items()):
        if name in w.speller.mentioned:
            w.speller.mentioned |= mentioned
            lines.insert(0, f"    const int {name} = {text};")
    return lines


def _prologue(kernel: ma.MemKernel, w: Writer) -> list[str]:
    """Declarations of the values of the thread and of the block that the kernel uses."""
    used, lines, apart = w.speller.mentioned, list[str](), kernel.spread
    if used & {"smem", "shared"}:
        lines.append("    extern __shared__ __align__(1024) unsigned char smem[];")
    if "shared" in used:
        lines.append(f"    const u32 shared = {w.speller.use('shared_address')}(smem);")
    lines += _places(kernel, w)
    if "lane" in used:
        lines.append("    const int lane = threadIdx.x % 32;")
    if "warp" in used and kernel.packed > 1:
        lines.append("    const int warp = 0;  // the only one of a block of the kernel")
    elif "warp" in used:
        within = " % 4" if has_warpgroups(kernel) else ""
        first = f" + blockIdx.x % {apart} * {kernel.warps // apart}" if apart > 1 else ""
        lines.append(f"    const int warp = threadIdx.x / 32{within}{first};")
    if "team_phase" in used:
        lines.append("    u32 team_phase = 0;  // the upper bit of the arrivals at the last barrier of the team")
    if kernel.packed > 1:
        lines.append(f"    const int block = blockIdx.x * {kernel.packed} + threadIdx.x / 32;")
        if not divisible_by(kernel.blocks, kernel.packed):
            lines.append(f"    if (block >= {w.expr(kernel.blocks)}) return;")
    elif "block" in used:
        lines.append(f"    const int block = blockIdx.x{f' / {apart}' if apart > 1 else ''};")
    return lines


def _name_infinity(w: Writer) -> None:
    """Declare a name for inf where the kernel uses it."""
    inf = literal(float("inf"), DType.F32)
    if any(inf in line for line in w.lines):
        name = w.unique("inf")
        w.lines = [f"    const float {name} = {inf};", *(line.replace(inf, name) for line in w.lines)]


def _places(kernel: ma.MemKernel, w: Writer) -> list[str]:
    """Declarations of the places in shared memory that the kernel uses, in their order, with what lies there.

    They are ``static``: NVRTC gives a kernel with automatic constants other code than one with literals.
    """
    stages = {f"{s.name}_at": _contents(s) for s in kernel.smem}
    lines = []
    for key, (name, value) in sorted(w.constants.items(), key=lambda c: (c[0].endswith("_bytes"), c[1][1], c[0])):
        if key.endswith("_bytes"):
            continue
        size = w.constants.get(f"{key.removesuffix('_at')}_bytes")
        more = "" if size is None else f", {size[0]} = {size[1]}"
        lines.append(f"    static constexpr int {name} = {value}{more};  // {stages.get(key, 'mbarriers')}")
    return lines


def _contents(s: ma.Smem) -> str:
    axes = ", ".join(f"{a.name}: {a.size}" for a in s.axes)
    stages = f", {s.stages} stages" if s.stages > 1 else ""
    return f"{s.dtype}[{axes}]{stages}" + (f", swizzle {s.swizzle}" if s.swizzle else "")


def start(module: ma.MemModule, kernel: ma.MemKernel, speller: Speller, statements: Statements = NONE) -> Writer:
    """A writer with the kernel's names bound."""
    w = Writer(module, kernel, speller, statements=statements)
    w.env["block"] = "block"
    names = module_names(hosted(module)).arguments
    w.taken.update(names.values())
    w.env.update({"&" + b.name: names[b.name] for b in module.buffers})
    w.env.update({p.name: names[p.name] for p in module.params})
    w.smem = {s.name: s for s in kernel.smem}
    ranges = axis_ranges(kernel)
    w.tile_axes = tuple(ranges)
    w.ranges.update(ranges)
    blocks = kernel.blocks
    w.ranges["block"] = (0, int(blocks.value) - 1 if isinstance(blocks, Const) else 2**31 - 1)
    for var, e in kernel.decode:
        low, high = index.bounds(e, w.ranges)
        if low is not None and high is not None:
            w.ranges[var] = (low, high)
    w.uses = elementwise.count_uses(kernel.body)
    for op in ma.walk_ops(kernel.body):
        for frag in bound(op):
            w.frags[frag.name] = frag
    return w


def parameters(module: ma.MemModule, shared: Container[str] = ()) -> tuple[str, ...]:
    """C parameters of every kernel of the module: buffers in argument order, then scalars.

    ``shared``: buffers that other blocks of the launch write, which the C++ compiler must not assume to know.
    """
    out: list[str] = []
    names = module_names(module).arguments
    for b in module.buffers:
        const = "const " if b.space is Space.INPUT else ""
        restrict = "" if b.space is Space.TEMP or b.name in shared else "__restrict__ "
        out.append(f"{const}{memory_type(b.dtype)}* {restrict}{names[b.name]}")
    out += [f"{scalar_type(p.dtype)} {names[p.name]}" for p in module.params]
    return tuple(out)


def print_body(w: Writer, body: tuple[ma.MemOp, ...]) -> None:
    """Print ops in order, and elementwise ops in runs."""
    n = 0
    while n < len(body):
        op = body[n]
        if not isinstance(op, _NO_STATEMENT):
            w.mark(op.span)
        if isinstance(op, ma.MapOp) and elementwise.is_skippable(op):
            w.owned = frozenset(f.name for x in body[:n] for f in bound(x)) | w.loop_args
            elementwise.print_skippable(w, op)
            n += 1
            continue
        if isinstance(op, elementwise.Elementwise):
            run = elementwise.split_run(w, body[n:])
            elementwise.print_run(w, run)
            n += len(run)
            continue
        w.owned = frozenset(f.name for x in body[:n] for f in bound(x)) | w.loop_args
        _PRINTERS[type(op)](w, op)
        n += 1


def print_undefined(w: Writer, op: ma.UndefinedOp) -> None:
    """An array without values."""
    w.declare(op.result)


def print_if(w: Writer, op: ma.IfOp) -> None:
    """Print a condition."""
    with w.braces(f"if ({w.expr(op.cond)})"):
        print_body(w, op.body)


def print_mma(w: Writer, op: ma.MmaOp) -> None:
    """Print the instructions of a warp or of a warpgroup."""
    if op.instr in WGMMA:
        warpgroup.print_wgmma(w, op)
    elif op.instr in MMA and MMA[op.instr].parts > 1:
        print_parts(w, op)
    else:
        matrix.print_mma(w, op)


def print_convert(w: Writer, op: ma.ConvertOp) -> None:
    """Print a permutation of registers inside each thread; the identity prints nothing, except for a copy."""
    perm = same_threads(w.layout(op.arg), w.layout(op.result), op.interleaved)
    assert perm is not None, "the verifier admits register permutations only"
    if perm == tuple(range(len(perm))) and not op.copy:
        w.names[op.result.name] = w.name(op.arg)
        w.aliased.add(w.names[op.result.name])
        return
    name, spelled = w.declare(op.result), w.array(op.result)
    source = w.name(op.arg)
    for n in range(spelled.length):
        group = [perm[n * spelled.pack + k] for k in range(spelled.pack)]
        aligned = group[0] % spelled.pack == 0 and group == list(range(group[0], group[0] + spelled.pack))
        if spelled.pack == 1 or aligned:
            w.line(f"{name}[{n}] = {source}[{group[0] // spelled.pack}];")
        else:
            dtype = op.result.type.dtype
            parts = [w.element_at(op.arg, str(g)) for g in group]
            w.line(f"{name}[{n}] = {elementwise.pack_text(w, parts, dtype, dtype)};")


def print_for(w: Writer, op: ma.ForOp) -> None:
    """Print a loop. Each carried value is stored in one array, which the end of the body overwrites."""
    for (arg, init), result in zip(op.carried, op.results, strict=True):
        if init.name in w.names and w.may_overwrite(init):
            w.names[arg.name] = w.names[init.name]
        else:
            _copy(w, w.declare(arg), init)
        w.names[result.name] = w.names[arg.name]
    outer_env, outer_args = dict(w.env), w.loop_args
    lo, hi = w.expr(op.lo), operand(w.expr(op.hi), SUM)
    var = w.env[op.var] = w.visible(op.var)
    bounds = (index.bounds(op.lo, w.ranges)[0], index.bounds(op.hi, w.ranges)[1])
    if bounds[0] is not None and bounds[1] is not None:
        w.ranges[op.var] = (bounds[0], max(bounds[0], bounds[1] - 1))
    else:
        w.ranges.pop(op.var, None)  # of another loop
    w.loop_args = frozenset(arg.name for arg, _ in op.carried)
    if op.unroll is not None:
        w.line(f"#pragma unroll {op.unroll}")
    with w.braces(f"for (int {var} = {lo}; {var} < {hi}; ++{var})"):
        print_body(w, op.body)
        targets = [w.names[arg.name] for arg, _ in op.carried]
        sources = list(op.yields)
        busy = set(targets)
        for n, (target, y) in enumerate(zip(targets, sources, strict=True)):
            name = w.names.get(y.name)
            if name != target and name in busy:  # a rotation of carried values: read before it is rewritten
                fresh = ma.Frag(f"{y.name}_next", y.type, y.layout)
                w.frags[fresh.name] = fresh
                _copy(w, w.declare(fresh), y)
                sources[n] = fresh
        for target, y in zip(targets, sources, strict=True):
            if w.names.get(y.name) != target:
                _copy(w, target, y)
    w.env, w.loop_args = outer_env, outer_args


def _copy(w: Writer, target: str, frag: ma.Frag) -> None:
    spelled = w.array(frag)
    if frag.name in w.inline and frag.name not in w.names:
        text = w.inline[frag.name]
        text = w.packed_constant(text, frag.type.dtype) if spelled.pack > 1 else text
        with w.registers("r", spelled.length) as r:
            w.line(f"{target}[{r}] = {text};")
        return
    source = w.name(frag)
    with w.registers("r", spelled.length) as r:
        w.line(f"{target}[{r}] = {source}[{r}];")


#: op class -> what prints it; elementwise ops are printed in runs
_PRINTERS: Printers = {
    ma.ForOp: print_for,
    ma.IfOp: print_if,
    ma.RolesOp: lambda w, op: roles.print_roles(w, op, print_body),
    ma.TileSchedulerOp: lambda w, op: scheduler.print_loop(w, op, print_body),
    ma.MmaOp: print_mma,
    ma.ConvertOp: print_convert,
    ma.UndefinedOp: print_undefined,
    **movement.PRINTERS,
    **stores.PRINTERS,
    **reduction.PRINTERS,
    **scan.PRINTERS,
    **unpack.PRINTERS,
    **matrix.PRINTERS,
    **warpgroup.PRINTERS,
    **pipelines.PRINTERS,
    **scheduler.PRINTERS,
    **roles.PRINTERS,
}
MA.complete({**_PRINTERS, **dict.fromkeys(get_args(elementwise.Elementwise))}, "printers")
