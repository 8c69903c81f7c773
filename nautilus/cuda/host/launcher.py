"""The host functions at the end of a ``.cu`` file, with C linkage.

===================================================================  ==================================================
``size_t NAME_workspace(sizes...)``                                  bytes of scratch memory of a launch; 0: it may be
                                                                     null.  ``sizes``: those that are known at launch
``int NAME_launch(inputs..., outputs..., scalars..., workspace,      launches every kernel in order
stream)``
``size_t NAME_plan_size(void)``                                      bytes of a plan, which starts at a multiple of 64
``int NAME_prepare(plan, inputs..., outputs..., scalars...,          checks the arguments, encodes the tensor maps and
workspace, stream)``                                                 clears the tile counter in ``stream``
``int NAME_launch_prepared(plan, stream)``                           launches as often as is wanted, with no other work
===================================================================  ==================================================

Each returns the first CUDA error (0: none).  The suffixes keep a spec called ``main`` or ``printf`` from redefining a C
function.  ``NAME_launch`` is ``NAME_prepare`` and ``NAME_launch_prepared``.  The workspace of a plan belongs to it
until its last launch has ended; the launches of one plan run one after another.

``NAME_prepare`` refuses a size beyond its bound, numbers for which a fact of the spec does not hold, an address that is
no multiple of 16 bytes, and a device that does not run at the same time the blocks which wait for each other.  It says
on standard error which.  A kernel whose grid is empty is not launched.
"""

from __future__ import annotations

from collections.abc import Iterator

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Const
from nautilus.core.index.sizes import as_extent
from nautilus.cuda.ctypes import interface_type, memory_type, scalar_type
from nautilus.cuda.host.api import Api, Start, attribute_of
from nautilus.cuda.host.co_residency import co_resident_check, co_resident_function
from nautilus.cuda.host.encode import ENCODE, encode_lines, map_fields
from nautilus.cuda.host.extents import extent_text
from nautilus.cuda.host.facts import fact_checks, fact_helpers
from nautilus.cuda.host.workspace import ALIGNMENT, workspace_bytes, workspace_offsets, workspace_sizes
from nautilus.cuda.names import allocate, module_names
from nautilus.cuda.ops.tile_scheduler import COUNTER, uses_counter
from nautilus.cuda.tensor_maps import kernel_maps
from nautilus.ma_tile.ir import ops as ma
from nautilus.targets.limits import MAX_BLOCKS

_MAP_BYTES, _PLAN_ALIGN = 128, 64
PLAN_HEAD = 64  # bytes before a plan that name its variant and its architecture


def parameters(module: ma.MemModule) -> list[str]:
    """C parameters of ``NAME_launch`` before the stream."""
    names = module_names(module)
    out = list[str]()
    for b in module.buffers:
        if b.space is not Space.TEMP:
            out.append(f"{'const ' if b.space is Space.INPUT else ''}void* {names.arguments[b.name]}")
    out += [f"{interface_type(p.dtype)} {names.arguments[p.name]}" for p in module.params]
    return [*out, f"void* {names.scratch}"]


def argument_names(module: ma.MemModule) -> list[str]:
    """The names of :func:`parameters`."""
    names = module_names(module)
    given = [*(b.name for b in module.buffers if b.space is not Space.TEMP), *(p.name for p in module.params)]
    return [*(names.arguments[name] for name in given), names.scratch]


def plan_bytes(module: ma.MemModule) -> int:
    """Bytes that the plan of a launch has at most."""
    small = 4 + len(module.buffers) + len(module.params) + len(module.kernels)  # each of at most 8 bytes
    return -(-8 * small // _PLAN_ALIGN) * _PLAN_ALIGN + _MAP_BYTES * len(map_fields(module))


def declarations(module: ma.MemModule) -> dict[str, str]:
    """The C declaration of each host function."""
    names = module_names(module)
    given, stream = ", ".join(parameters(module)), f"cudaStream_t {names.stream}"
    sized = ", ".join(f"int {names.arguments[name]}" for name in workspace_sizes(module))
    return {
        "workspace": f"size_t {names.workspace}({sized or 'void'})",
        "launch": f"int {names.launch}({given}, {stream})",
        "plan_size": f"size_t {names.plan_size}(void)",
        "prepare": f"int {names.prepare}(void* plan, {given}, {stream})",
        "launch_prepared": f"int {names.launch_prepared}(const void* plan, {stream})",
    }


def internal(module: ma.MemModule, api: Api, said: str) -> Iterator[str]:
    """Lines inside the namespace: the plan, what fills it, and what launches it. ``said``: the name in messages."""
    if map_fields(module):
        yield from [*api.find_encode.splitlines(), "", *ENCODE.splitlines(), ""]
    yield from fact_helpers(module.facts)
    yield from co_resident_function(module, api.co_residency)
    yield from _plan(module, api)
    yield ""
    yield from _prepare(module, api, said)
    yield ""
    yield from _launch(module, api)


def _blocks_fields(module: ma.MemModule) -> dict[str, str]:
    """Kernel -> the field with the number of its blocks, where that is known at launch."""
    taken = {*module_names(module).arguments.values(), *map_fields(module).values()}
    open_ = [k.name for k in module.kernels if not isinstance(k.blocks, Const)]
    return dict(zip(open_, allocate((f"{name}_blocks" for name in open_), taken).values(), strict=True))


def _plan(module: ma.MemModule, api: Api) -> Iterator[str]:
    names = module_names(module).arguments
    yield "// The arguments of the kernels. Their tensor maps hold addresses, sizes and strides."
    yield "struct Plan {"
    for b in module.buffers:
        yield f"    {'const ' if b.space is Space.INPUT else ''}{memory_type(b.dtype)}* {names[b.name]};"
    for p in module.params:
        yield f"    {scalar_type(p.dtype)} {names[p.name]};"
    if any(uses_counter(k) for k in module.kernels):
        yield f"    u32* {COUNTER};"
    for field in _blocks_fields(module).values():
        yield f"    unsigned {field};"
    for field in api.plan_fields:
        yield f"    {field};"
    for field in map_fields(module).values():
        yield f"    TensorMap {field};"
    yield "};"
    yield f'static_assert(sizeof(Plan) <= {plan_bytes(module)}, "the size that callers know");'


def _prepare(module: ma.MemModule, api: Api, said: str) -> Iterator[str]:
    names = module_names(module)
    given = ", ".join([*parameters(module), f"cudaStream_t {names.stream}"])
    yield f"static cudaError_t prepare(Plan* plan, {given}) {{"
    yield f"    (void){names.scratch}, (void){names.stream};"
    yield "    cudaError_t status = cudaSuccess;"
    yield from _checks(module, said)
    yield from api.open
    yield from co_resident_check(module, said)
    offsets = workspace_offsets(module)[0]
    for b in module.buffers:
        c, kind = names.arguments[b.name], memory_type(b.dtype)
        if b.space is Space.TEMP:
            at = _scratch_at(names.scratch, extent_text(offsets[b.name], names.arguments, 2))
            yield f"    plan->{c} = reinterpret_cast<{kind}*>({at});"
        else:
            yield f"    plan->{c} = static_cast<{'const ' if b.space is Space.INPUT else ''}{kind}*>({c});"
    for p in module.params:
        yield f"    plan->{names.arguments[p.name]} = {names.arguments[p.name]};"
    if any(uses_counter(k) for k in module.kernels):
        yield from _clear_counter(module)
    for k in module.kernels:
        yield from _prepare_kernel(module, api, k)
    yield "    return status;"
    yield "}"


def _clear_counter(module: ma.MemModule) -> Iterator[str]:
    names = module_names(module)
    at = extent_text(workspace_offsets(module)[1], names.arguments, 2)
    yield f"    plan->{COUNTER} = reinterpret_cast<u32*>({_scratch_at(names.scratch, at)});"
    yield f"    status = cudaMemsetAsync(plan->{COUNTER}, 0, sizeof(u32), {names.stream});"
    yield "    if (status != cudaSuccess) return status;"


def _scratch_at(scratch: str, offset: str) -> str:
    """The address ``offset`` bytes after the beginning of the scratch memory."""
    return f"static_cast<char*>({scratch})" + ("" if offset == "0" else f" + {offset}")


def _checks(module: ma.MemModule, said: str) -> Iterator[str]:
    names = module_names(module)
    for p in module.params:
        if p.most is not None:
            n = names.arguments[p.name]
            told = f"{said}: {p.name} is %lld; allowed are 0 to {p.most}"
            yield f"    if ({n} < 0 || {n} > {p.most}) {{"
            yield f'        fprintf(stderr, "{told}\\n", (long long){n});'
            yield "        return cudaErrorInvalidValue;"
            yield "    }"
    yield from fact_checks(module.facts, names.arguments, said)
    given = [(b.name, names.arguments[b.name]) for b in module.buffers if b.space is not Space.TEMP and b.aligned]
    tensors = [*given, *([("the workspace", names.scratch)] if workspace_bytes(module) != 0 else [])]
    listed = ", ".join(f'{{"{name}", {c}}}' for name, c in [*tensors, ("the plan", "plan")])
    yield f"    const struct {{ const char* name; const void* address; }} tensors[] = {{{listed}}};"
    yield "    for (const auto& tensor : tensors) {"
    yield f"        if (reinterpret_cast<size_t>(tensor.address) % {ALIGNMENT} == 0) continue;"
    told = f"{said}: the address of %s is no multiple of {ALIGNMENT} bytes"
    yield f'        fprintf(stderr, "{told}\\n", tensor.name);'
    yield "        return cudaErrorMisalignedAddress;"
    yield "    }"


def _prepare_kernel(module: ma.MemModule, api: Api, k: ma.MemKernel) -> Iterator[str]:
    names, blocks = module_names(module), as_extent(k.launched)
    lines = [*encode_lines(module, k), *api.allow_shared(names.kernels[k.name], k.smem_bytes)]
    if isinstance(blocks, int):
        yield from lines
        return
    field = f"plan->{_blocks_fields(module)[k.name]}"
    yield "    {"
    yield f"        const long long blocks = {extent_text(blocks, names.arguments)};"
    yield f"        if (blocks > {MAX_BLOCKS}) return cudaErrorInvalidConfiguration;"
    yield f"        {field} = (unsigned)blocks;"
    yield "    }"
    if lines:
        yield f"    if ({field}) {{"
        yield from (f"    {line}" for line in lines)
        yield "    }"


def _launch(module: ma.MemModule, api: Api) -> Iterator[str]:
    names, fields = module_names(module), map_fields(module)
    yield f"static cudaError_t launch(const Plan& plan, cudaStream_t {names.stream}) {{"
    yield "    cudaError_t status = cudaSuccess;"
    shared = [names.arguments[a] for a in (*(b.name for b in module.buffers), *(p.name for p in module.params))]
    for n, k in enumerate(module.kernels):
        maps = [fields[k.name, m.name] for m in kernel_maps(module, k)]
        args = tuple(f"plan.{a}" for a in [*shared, *maps, *([COUNTER] if uses_counter(k) else [])])
        blocks = as_extent(k.launched)
        count = str(blocks) if isinstance(blocks, int) else f"plan.{_blocks_fields(module)[k.name]}"
        start = Start(n, names.kernels[k.name], count, k.threads, k.smem_bytes, attribute_of(k), args, names.stream)
        more = n + 1 < len(module.kernels)
        lines = [*api.launch(start), *(["    if (status != cudaSuccess) return status;"] if more else [])]
        if isinstance(blocks, int):
            yield from lines
        else:
            yield from [f"    if ({count}) {{", *(f"    {line}" for line in lines), "    }"]
    yield "    return status;"
    yield "}"
