"""The text of several variants of a spec, and of host functions that choose among them by the sizes of the launch.

Every variant has a namespace with its kernels, its plan and what fills and launches it.  The public functions have the
names and the arguments that they have without variants.  One function compares sizes with the thresholds of the
dispatch::

    static int NAME_launch_variant(int M) {
        if (M <= 640) return 0;  // M256
        return 1;  // M1024
    }

A variant that was compiled under facts about sizes is launched only where the comparisons on the way to it imply them
(:func:`check_dispatch`); its own launcher checks them again.

A plan begins with the number of its variant; behind the first :data:`PLAN_HEAD` bytes lies the plan of that variant.

The last variant may be one for unaligned tensors.  It is launched where an address, or a stride that is given at
launch, is not a multiple of 16 bytes.  Its scratch memory counts at all sizes, because the function for scratch memory
does not get addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.errors import InternalError
from nautilus.core.schedule.dispatch import Dispatch, Leaf, Range, SizeFact, Threshold, unproved
from nautilus.core.types import DType
from nautilus.cuda.emit import device_part, whole_text
from nautilus.cuda.host.extents import extent_text
from nautilus.cuda.host.launcher import PLAN_HEAD, argument_names, declarations, host_part, parameters, plan_bytes
from nautilus.cuda.host.workspace import ALIGNMENT, larger, workspace_bytes, workspace_sizes
from nautilus.cuda.module import CudaModule
from nautilus.cuda.names import ModuleNames, kernel_symbols, module_names
from nautilus.cuda.text.statements import Spec, Statements
from nautilus.cuda.text.wrapping import wrapped
from nautilus.ma_tile.ir import ops as ma


def lower_variants(
    sized: Sequence[ma.MemModule], dispatch: Dispatch, whole: ma.MemModule, header: tuple[str, ...] = (),
    unaligned: ma.MemModule | None = None, spec: Spec | None = None,
) -> CudaModule:  # fmt: skip
    """Variants of one spec with names of their own in one text. Raises UnsupportedError.

    ``sized``: those that ``dispatch`` numbers; ``whole``: the module that serves all sizes, whose name and arguments
    the public functions have; ``spec``: as :func:`.module.lower`.
    """
    modules = sized if unaligned is None else (*sized, unaligned)
    if len({tuple((p.name, p.dtype) for p in m.params) for m in modules}) != 1:
        raise InternalError("variants of one spec have different params")
    check_dispatch(dispatch, sized, whole)
    entries = _entry_points(modules, dispatch, replace(whole, kernels=()), unaligned)
    statements = Statements.of(spec)
    text = whole_text(header, [device_part(m, statements) for m in modules], host_part(modules, entries))
    kernels = {symbol: f"{m.name}.{kernel}" for m in modules for symbol, kernel in kernel_symbols(m).items()}
    return CudaModule(wrapped(text), kernels)


def check_dispatch(dispatch: Dispatch, sized: Sequence[ma.MemModule], whole: ma.MemModule) -> None:
    """Raises InternalError where a variant is reached at sizes for which it was not compiled."""
    ranges, facts = _known(whole)
    found = unproved(dispatch, [_known(m)[1] for m in sized], Leaf(0, ranges, {f.size: f.multiple for f in facts}))
    if found is not None:
        leaf, fact = found
        name, where = sized[leaf.variant].name, leaf.condition
        raise InternalError(f"variant {name} needs '{fact.text}', which '{where}' does not imply")


def _known(module: ma.MemModule) -> tuple[dict[str, Range], list[SizeFact]]:
    """What ``module`` takes for granted of runtime sizes."""
    sizes = [p for p in module.params if p.most is not None and p.dtype is DType.I32]
    return {p.name: (-1, p.most) for p in sizes}, [SizeFact(p.name, p.most, p.multiple) for p in sizes]


def variants_plan_bytes(modules: Sequence[ma.MemModule]) -> int:
    """Bytes that the plan of a launch has at most."""
    return PLAN_HEAD + max(map(plan_bytes, modules))


def _entry_points(
    modules: Sequence[ma.MemModule], dispatch: Dispatch, public: ma.MemModule, unaligned: ma.MemModule | None
) -> Iterator[str]:
    """Lines with the functions of C linkage. ``public``: the name and the arguments of all variants."""
    names, declared = module_names(public), declarations(public)
    given = ", ".join(argument_names(public))
    inner = [module_names(m).namespace for m in modules]
    sizes = [names.arguments[s] for s in workspace_sizes(public)]
    number = f"{names.launch}_variant"
    choose = f"{number}({', '.join(sizes)})"
    chosen, other = choose, 0 if unaligned is None else workspace_bytes(unaligned)

    def branch(n: int) -> str:
        return f"return {n};  // {modules[n].name}"

    yield f"static int {number}({', '.join(f'int {s}' for s in sizes)}) {{"
    yield from _choice(dispatch, names.arguments, branch)
    yield "}"
    yield ""
    if unaligned is not None:
        chosen = f"{names.launch}_is_aligned({given}) ? {choose} : {len(modules) - 1}"
        yield f"static bool {names.launch}_is_aligned({', '.join(parameters(public))}) {{"
        yield f"    return {' && '.join(_aligned(public, names.arguments))};"
        yield "}"
        yield ""
    scratch = [extent_text(larger(workspace_bytes(m), other), names.arguments) for m in modules]
    yield f'extern "C" {declared["workspace"]} {{'
    yield from _switch(choose, [f"return {size};" for size in scratch])
    yield "}"
    yield ""
    yield f'extern "C" {declared["plan_size"]} {{ return {variants_plan_bytes(modules)}; }}'
    yield ""
    yield f'extern "C" {declared["prepare"]} {{'
    yield f"    void* const own = static_cast<char*>(plan) + {PLAN_HEAD};"
    fill = [f"return {x}::prepare(static_cast<{x}::Plan*>(own), {given}, {names.stream});" for x in inner]
    yield from _switch(f"*static_cast<int*>(plan) = {chosen}", fill)
    yield "}"
    yield ""
    yield f'extern "C" {declared["launch_prepared"]} {{'
    yield f"    const void* const own = static_cast<const char*>(plan) + {PLAN_HEAD};"
    start = [f"return {x}::launch(*static_cast<const {x}::Plan*>(own), {names.stream});" for x in inner]
    yield from _switch("*static_cast<const int*>(plan)", start)
    yield "}"
    yield ""
    yield f'extern "C" {declared["launch"]} {{'
    yield from _switch(chosen, [_launch(x, given, names) for x in inner])
    yield "}"


def _aligned(module: ma.MemModule, names: Mapping[str, str]) -> Iterator[str]:
    """C conditions under which addresses and strides are as the kernels of ``module`` need them."""
    for b in module.buffers:
        if b.space is not Space.TEMP and b.strides is not None and b.aligned:
            yield f"reinterpret_cast<size_t>({names[b.name]}) % {ALIGNMENT} == 0"
    for p in module.params:
        if p.dtype is DType.I64 and p.multiple > 1:
            yield f"{names[p.name]} % {p.multiple} == 0"


def _launch(inner: str, given: str, names: ModuleNames) -> str:
    prepare = f"{inner}::Plan plan; const int status = {inner}::prepare(&plan, {given}, {names.stream});"
    return f"{{ {prepare} return status ? status : {inner}::launch(plan, {names.stream}); }}"


def _switch(number: str, cases: Sequence[str]) -> Iterator[str]:
    """One of ``cases`` by ``number``; the last one is for all other numbers."""
    yield f"    switch ({number}) {{"
    for n, case in enumerate(cases):
        yield f"        {f'case {n}' if n + 1 < len(cases) else 'default'}: {case}"
    yield "    }"


def _choice(
    dispatch: Dispatch, names: Mapping[str, str], leaf: Callable[[int], str], indent: str = "    "
) -> Iterator[str]:
    """Lines with ``leaf`` of the variant that ``dispatch`` chooses."""
    if isinstance(dispatch, int):
        yield indent + leaf(dispatch)
        return
    if isinstance(dispatch, Threshold):
        asked = f"{names[dispatch.size]} <= {dispatch.most}"
    else:
        asked = " && ".join(f"{names[name]} % {by} == 0" for name, by in dispatch.divisors)
    condition = f"{indent}if ({asked}) "
    if isinstance(dispatch.within, int):
        yield condition + leaf(dispatch.within)
    else:
        yield f"{condition}{{"
        yield from _choice(dispatch.within, names, leaf, indent + "    ")
        yield f"{indent}}}"
    yield from _choice(dispatch.beyond, names, leaf, indent)
