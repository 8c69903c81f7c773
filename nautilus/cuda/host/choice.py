"""The public host functions of a spec, which choose among its variants by the sizes of the launch.

Every variant has a namespace with its plan and with what fills and launches it.  The public functions have the names
and the arguments that they have without variants.  One function compares sizes with the thresholds of the dispatch::

    static int NAME_launch_variant(int M) {
        if (M <= 640) return 0;  // M256
        return 1;  // M1024
    }

A variant that was compiled under facts about sizes is launched only where the comparisons on the way to it imply them
(:func:`check_dispatch`); its own ``prepare`` checks them again.

One more variant may be for unaligned tensors.  It is launched where an address, or a stride that is given at launch, is
not a multiple of 16 bytes.  The last variant may be one that every device runs.  It is launched in the place of a
variant whose blocks wait for each other, where the device does not run all of them at the same time
(:mod:`.co_residency`).  The scratch memory of both counts at all sizes, because the function for scratch memory gets
neither addresses nor a device.

The plan of several variants begins with the number of its variant; after the first :data:`PLAN_HEAD` bytes lies the
plan of that variant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.errors import InternalError
from nautilus.core.records import dataclass
from nautilus.core.schedule.dispatch import Dispatch, Leaf, Range, SizeFact, Threshold, unproved
from nautilus.core.types import DType
from nautilus.cuda.host.api import RUNTIME
from nautilus.cuda.host.capacity import hosted
from nautilus.cuda.host.co_residency import CO_RESIDENT, waiting
from nautilus.cuda.host.extents import extent_text
from nautilus.cuda.host.launcher import PLAN_HEAD, argument_names, declarations, internal, parameters, plan_bytes
from nautilus.cuda.host.workspace import ALIGNMENT, larger, workspace_bytes, workspace_sizes
from nautilus.cuda.names import module_names
from nautilus.ma_tile.ir.ops import MemModule


@dataclass(frozen=True, slots=True)
class Choice:
    """The variants of one spec, and which of them a launch runs.

    ``sized``: those that ``dispatch`` numbers; ``whole``: the module that serves all sizes, whose name and arguments
    the public functions have; ``unaligned``: for strides and addresses that are no multiples of 16 bytes.
    ``noncooperative``: for devices that do not run all blocks of another one at the same time.
    """

    sized: tuple[MemModule, ...]
    dispatch: Dispatch
    whole: MemModule
    unaligned: MemModule | None = None
    noncooperative: MemModule | None = None

    @classmethod
    def of(cls, module: MemModule) -> Choice:
        """One module for every launch."""
        return cls((module,), 0, module)

    @property
    def modules(self) -> tuple[MemModule, ...]:
        """All variants, in the order of their numbers."""
        return (*self.sized, *(m for m in (self.unaligned, self.noncooperative) if m is not None))

    @property
    def hosts(self) -> tuple[MemModule, ...]:
        """All variants, as the host knows them."""
        return tuple(map(hosted, self.modules))

    @property
    def public(self) -> MemModule:
        """A module with the name and the arguments of the public functions."""
        return hosted(self.whole if len(self.modules) == 1 else replace(self.whole, kernels=()))

    @property
    def plan_bytes(self) -> int:
        """Bytes that the plan of a launch has at most."""
        most = max(map(plan_bytes, self.hosts))
        return most if len(self.modules) == 1 else PLAN_HEAD + most

    @property
    def needs_workspace(self) -> bool:
        """Whether some launch needs scratch memory."""
        return any(workspace_bytes(m) != 0 for m in self.hosts)

    @property
    def waiting(self) -> tuple[int, ...]:
        """The numbers of the variants in whose place the last one may be launched."""
        return () if self.noncooperative is None else tuple(n for n, m in enumerate(self.modules) if waiting(m))

    def checked(self) -> tuple[list[Buffer], list[ScalarParam]]:
        """The tensors whose addresses, and the strides whose values, decide about the one for unaligned ones."""
        if self.unaligned is None:
            return [], []
        tensors = [b for b in self.whole.buffers if b.space is not Space.TEMP and b.strides is not None and b.aligned]
        return tensors, [p for p in self.whole.params if p.dtype is DType.I64 and p.multiple > 1]


def check_dispatch(choice: Choice) -> None:
    """Raises InternalError where variants differ in their params, or where one is reached at sizes that it excludes."""
    if len({tuple((p.name, p.dtype) for p in m.params) for m in choice.modules}) != 1:
        raise InternalError("variants of one spec have different params")
    ranges, facts = _known(choice.whole)
    known = Leaf(0, ranges, {f.size: f.multiple for f in facts})
    found = unproved(choice.dispatch, [_known(m)[1] for m in choice.sized], known)
    if found is not None:
        leaf, fact = found
        name, where = choice.sized[leaf.variant].name, leaf.condition
        raise InternalError(f"variant {name} needs '{fact.text}', which '{where}' does not imply")


def _known(module: MemModule) -> tuple[dict[str, Range], list[SizeFact]]:
    """The facts about runtime sizes under which ``module`` was compiled."""
    sizes = [p for p in module.params if p.most is not None and p.dtype is DType.I32]
    return {p.name: (-1, p.most) for p in sizes}, [SizeFact(p.name, p.most, p.multiple) for p in sizes]


def host_part(choice: Choice) -> str:
    """Text of the host part of a ``.cu`` file: the namespace of each module, and the functions with C linkage."""
    lines = [
        "#ifndef __CUDACC_RTC__",
        "#include <cuda_runtime.h>",
        *(f"#include <{name}>" for name in ("cuda.h", "math.h", "stdio.h", "stdlib.h", "string.h")),
        "",
    ]
    for module in choice.hosts:
        lines += [f"namespace {module_names(module).namespace} {{", *internal(module, RUNTIME, choice.whole.name)]
        lines += ["}  // namespace", ""]
    return "\n".join([*lines, *_entry_points(choice), "#endif", ""])


def _entry_points(choice: Choice) -> Iterator[str]:
    """Lines with the functions of C linkage of a ``.cu`` file."""
    names, declared = module_names(choice.public), declarations(choice.public)
    linked = {name: f'extern "C" {text}' for name, text in declared.items()}
    functions = choosing(choice, linked["workspace"], linked["prepare"], linked["launch_prepared"])
    yield from functions.number
    yield from functions.workspace
    yield ""
    yield f"{linked['plan_size']} {{ return {choice.plan_bytes}; }}"
    yield ""
    yield from functions.prepare
    yield ""
    yield from functions.launch
    yield ""
    given, stream = ", ".join(argument_names(choice.public)), names.stream
    yield f"{linked['launch']} {{"
    inner = [module_names(m).namespace for m in choice.hosts]
    if len(inner) == 1:
        yield f"    {inner[0]}::Plan plan;"
        yield f"    const int status = {inner[0]}::prepare(&plan, {given}, {stream});"
        yield f"    return status ? status : {inner[0]}::launch(plan, {stream});"
    else:
        prepare = "{x}::Plan plan; const int status = {x}::prepare(&plan, {given}, {stream});"
        launch = "{{ " + prepare + " return status ? status : {x}::launch(plan, {stream}); }}"
        yield from _switch(functions.chosen, [launch.format(x=x, given=given, stream=stream) for x in inner])
    yield "}"


@dataclass(frozen=True, slots=True)
class Functions:
    """Lines of functions that choose. ``number``: those that find the variant; ``chosen``: the C text of their call."""

    number: tuple[str, ...]
    chosen: str
    workspace: tuple[str, ...]
    prepare: tuple[str, ...]
    launch: tuple[str, ...]


def choosing(choice: Choice, workspace: str, prepare: str, launch: str) -> Functions:
    """The functions with these declarations, which have the parameters of :func:`declarations`.

    The namespaces of the variants are in scope where the text stands.
    """
    public = choice.public
    names, given = module_names(public), ", ".join(argument_names(public))
    inner = [module_names(m).namespace for m in choice.hosts]
    if len(inner) == 1:
        scope, size = inner[0], extent_text(workspace_bytes(public), names.arguments)
        fill = f"    return {scope}::prepare(static_cast<{scope}::Plan*>(plan), {given}, {names.stream});"
        start = f"    return {scope}::launch(*static_cast<const {scope}::Plan*>(plan), {names.stream});"
        bodies = (f"{workspace} {{ return {size}; }}",), (f"{prepare} {{", fill, "}"), (f"{launch} {{", start, "}")
        return Functions((), "0", *bodies)
    sizes = [names.arguments[s] for s in workspace_sizes(public)]
    by_size = f"{names.launch}_variant({', '.join(sizes)})"
    chosen = by_size
    if choice.unaligned is not None:
        asked = ", ".join(name for name, _ in _asked(choice))
        chosen = f"{names.launch}_is_aligned({asked}) ? {by_size} : {len(choice.sized)}"
    if choice.waiting:
        chosen = f"{names.launch}_co_resident({chosen})"
    others = [workspace_bytes(m) for m in choice.hosts[len(choice.sized) :]]
    scratch = [extent_text(reduce(larger, others, workspace_bytes(m)), names.arguments) for m in choice.hosts]
    fills = [f"return {x}::prepare(static_cast<{x}::Plan*>(own), {given}, {names.stream});" for x in inner]
    starts = [f"return {x}::launch(*static_cast<const {x}::Plan*>(own), {names.stream});" for x in inner]
    return Functions(
        tuple(_number(choice)),
        chosen,
        (f"{workspace} {{", *_switch(by_size, [f"return {size};" for size in scratch]), "}"),
        (
            f"{prepare} {{", f"    void* const own = static_cast<char*>(plan) + {PLAN_HEAD};",
            *_switch(f"*static_cast<int*>(plan) = {chosen}", fills), "}",
        ),
        (
            f"{launch} {{", f"    const void* const own = static_cast<const char*>(plan) + {PLAN_HEAD};",
            *_switch("*static_cast<const int*>(plan)", starts), "}",
        ),
    )  # fmt: skip


def _number(choice: Choice) -> Iterator[str]:
    """Lines with the functions that find the number of the variant."""
    names = module_names(choice.public)
    sizes = [names.arguments[s] for s in workspace_sizes(choice.public)]
    listed = ("int" if isinstance(choice.dispatch, int) else f"int {s}" for s in sizes)  # a name that is read
    yield f"static int {names.launch}_variant({', '.join(listed)}) {{"
    yield from _tree(choice.dispatch, names.arguments, lambda n: f"return {n};  // {choice.modules[n].name}")
    yield "}"
    yield ""
    if choice.unaligned is not None:
        tensors, strides = choice.checked()
        asked = [f"reinterpret_cast<size_t>({names.arguments[b.name]}) % {ALIGNMENT} == 0" for b in tensors]
        asked += [f"{names.arguments[p.name]} % {p.multiple} == 0" for p in strides]
        yield f"static bool {names.launch}_is_aligned({', '.join(declared for _, declared in _asked(choice))}) {{"
        yield f"    return {' && '.join(asked)};"
        yield "}"
        yield ""
    if choice.waiting:
        yield "// The variant `n`, or the last one where the device does not run all blocks of `n` at the same time."
        yield f"static int {names.launch}_co_resident(int n) {{"
        for n in choice.waiting:
            scope = module_names(choice.hosts[n]).namespace
            yield f"    if (n == {n} && !{scope}::{CO_RESIDENT}()) return {len(choice.modules) - 1};"
        yield "    return n;"
        yield "}"
        yield ""


def _asked(choice: Choice) -> list[tuple[str, str]]:
    """The names and the declarations of the arguments that decide about the variant for unaligned tensors."""
    tensors, strides = choice.checked()
    names = module_names(choice.public).arguments
    read = {names[name] for name in [*(b.name for b in tensors), *(p.name for p in strides)]}
    given = zip(argument_names(choice.public), parameters(choice.public), strict=True)
    return [(name, declared) for name, declared in given if name in read]


def _switch(number: str, cases: Sequence[str]) -> Iterator[str]:
    """One of ``cases`` by ``number``; the last one is for all other numbers."""
    yield f"    switch ({number}) {{"
    for n, case in enumerate(cases):
        yield f"        {f'case {n}' if n + 1 < len(cases) else 'default'}: {case}"
    yield "    }"


def _tree(
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
        yield from _tree(dispatch.within, names, leaf, indent + "    ")
        yield f"{indent}}}"
    yield from _tree(dispatch.beyond, names, leaf, indent)
