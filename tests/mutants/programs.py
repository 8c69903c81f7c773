"""The kernels whose mutants are tried: the shipped specs at small sizes, under the schedules of their full sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from nautilus.check.inputs import InputSet, generate
from nautilus.check.sizes import spec_at
from nautilus.check.sizes import variants as sizes_of
from nautilus.core.errors import DiagnosticError, InputError, ScheduleError, UnsupportedError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Param, Reduce, walk
from nautilus.core.expr.products import indexed_factors
from nautilus.core.index.simplify import bounds
from nautilus.core.index.sizes import Extent
from nautilus.core.schedule import KernelPlan, Schedule, WarpPlan
from nautilus.core.schedule.recomputed import recomputing
from nautilus.core.types import DType
from nautilus.driver import Request, Result, compile_file
from nautilus.frontend.promises import integer_ranges, keep
from nautilus.frontend.semantics.check import load_spec
from nautilus.frontend.spec import Spec
from nautilus.ma_tile.interp.block import BlockRun
from nautilus.ma_tile.interp.module import InterpError, Launches, run_module
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    ForOp,
    GlobalLoad,
    IndexOp,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    walk_ops,
)
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import rebuild
from nautilus.ma_tile.passes.grid import persistent_grid
from nautilus.targets.limits import limits
from nautilus.tune.database.lookup import tuned_schedule
from tests.endtoend.schedules import BACK_TO_BACK, GEMM
from tests.shipped import SPECS

ARCHES = ("sm_90a", "sm_80")
#: so that each persistent block processes several tiles
_MULTIPROCESSORS = 2
#: terms of a product: more tiles than a pipeline has stages, and a remainder; the second if the first is not legal
_LONG = (520, 640)
_GROWTH = 4  # of sizes that are too short: a copy in a loop never runs, or a block has one tile
_STEP = 128  # what sizes are multiples of, as those of groups and blocks
_FLAGS = ("_nan", "_nan2")  # the names of tensors that say which rows are computed again end so
_FEW, _MANY = 5, 13  # one of so many blocks of few, and of many, computes rows again
_NANS = (3 / 7, 1)  # elements that are NaN, as a share of those of a tensor; the first lies before a causal limit


@dataclass
class Program:
    """A module with inputs for it.

    ``ends``: inputs whose integers are at the ends of their ranges, or below, as lengths of 0; None where there are no
    integers.
    """

    name: str
    module: MemModule
    inputs: Mapping[str, Any]
    scalars: Mapping[str, Any]
    ends: Mapping[str, Any] | None = None
    _expected: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    _executed: dict[str, set[int]] = field(default_factory=dict)
    _launches: dict[tuple[bool, int], Launches] = field(default_factory=lambda: defaultdict(Launches))

    def _inputs(self, seed: int) -> Mapping[str, Any]:
        """The inputs for ``seed``: every second pair of seeds has integers at the ends of their ranges."""
        return self.inputs if self.ends is None or seed // 2 % 2 == 0 else self.ends

    def run(self, module: MemModule, kernel: str, seed: int = 0) -> dict[str, Any]:
        """What ``module`` computes on inputs for which ``kernel`` has work. Raises InterpError.

        A kernel that computes rows again has those that NaN reaches, and for odd seeds those of some blocks.  Launches
        of kernels that are as in an earlier run are not repeated.
        """
        inputs, again = self._inputs(seed), self._is_recomputing(kernel)
        if again:
            inputs, module = (inputs, with_more_rows(module, kernel)) if seed % 2 else (with_nan(inputs), module)
        with np.errstate(all="ignore"):
            return run_module(module, inputs, self.scalars, seed, self._launches[again, seed])

    def expected(self, kernel: str, seed: int = 0) -> dict[str, Any]:
        """What the module computes on the inputs for ``kernel`` and ``seed``."""
        again, ends = self._is_recomputing(kernel), self.ends is not None and seed // 2 % 2
        key = kernel if again else "", 2 * bool(ends) + again * (seed % 2)
        if key not in self._expected:
            self._expected[key] = self.run(self.module, *key)
        return self._expected[key]

    def executed(self, kernel: str) -> set[int]:
        """The identities of the ops that the module runs on the inputs for ``kernel``."""
        again, found = self._is_recomputing(kernel), set[int]()
        key = kernel if again else ""
        if key not in self._executed:
            plain = BlockRun.program

            def program(block: BlockRun, ctx: Any, body: tuple[MemOp, ...]) -> Any:
                for op in body:
                    found.add(id(op))
                    yield from plain(block, ctx, (op,))

            self._launches.clear()
            with patch.object(BlockRun, "program", program):
                for seed in range(0, 2 if self.ends is None else 4, 1 if again else 2):
                    self.run(self.module, kernel, seed)
            self._executed[key] = found
        return self._executed[key]

    def alone(self) -> Program:
        """The program without results of runs, which refer to identities of ops in this process."""
        return Program(self.name, self.module, self.inputs, self.scalars, self.ends)

    def _is_recomputing(self, kernel: str) -> bool:
        return any(recomputing(k.name) == kernel for k in self.module.kernels)


def with_nan(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """``inputs`` with NaN as their last number and one in the middle."""
    made = {n: np.array(x) for n, x in inputs.items()}
    for x in made.values():
        if x.dtype.kind == "f" and x.size:
            x.reshape(-1)[[int(x.size * share) - 1 for share in _NANS]] = np.nan
    return made


def with_more_rows(module: MemModule, kernel: str) -> MemModule:
    """``module`` whose ``kernel`` computes rows of more blocks again: it must be right for any flags and tests.

    Loops of these blocks may have no iteration, which no NaN of an input reaches.
    """
    (changed,) = (k for k in module.kernels if k.name == kernel)
    apart = _FEW if (bounds(changed.blocks)[1] or 0) < _FEW * _MANY else _MANY
    found = {f.name for op in walk_ops(changed.body) if isinstance(op, ForOp) for f in op.results}
    blocks: list[Expr] = []  # the condition of the blocks that are chosen, as the last load of flags has it

    def more(op: MemOp) -> tuple[MemOp, ...]:
        match op:
            case GlobalLoad(result=r, buffer=name, index=(first, *_), mask=mask) if name.endswith(_FLAGS):
                cond = calc("eq", calc("mod", first, apart), 0)
                blocks.append(cond if mask is None else calc("and", cond, mask))
                loaded, chosen = (replace(r, name=f"{r.name}_{end}") for end in ("loaded", "chosen"))
                return replace(op, result=loaded), IndexOp(chosen, blocks[-1]), MapOp(r, "or", (loaded, chosen))
            case MapOp(op="select", args=(cond, *values), result=r) if cond.name in found and r.type.dtype is DType.I32:
                both, chosen = (replace(cond, name=f"{r.name}_{end}") for end in ("both", "chosen"))
                tested = replace(op, args=(both, *values))
                return IndexOp(chosen, blocks[-1]), MapOp(both, "or", (cond, chosen)), tested
        return (op,)

    body = rebuild(changed.body, more)
    return replace(module, kernels=tuple(replace(k, body=body) if k is changed else k for k in module.kernels))


def small(path: Path) -> dict[str, int]:
    """Sizes with ragged edges: a few tiles of each persistent block, and more steps than a pipeline has stages."""
    dims = {d.name: d.value for d in load_spec(path).dims}
    heads = {"B": 1, "P": 1, "H": 1, "Hkv": 1, "Hq": (dims.get("Hq") or 1) // (dims.get("Hkv") or 1), "W": 150}
    out = {name: heads[name] for name in dims if name in heads}
    if "D" in dims:
        return out | ({"M": 1, "N": 384} if dims["M"] == 1 else {"M": 648, "N": 648})
    if "K" in dims:
        return out | {"M": 336, "N": 336, "K": 320}
    return out | {"M": 2}


def compiled(path: Path, arch: str, schedule: Schedule, name: str) -> Program:
    """``path`` at small sizes under ``schedule``."""
    result = _compiled(Request(path, arch, until="ma-tile", schedule=schedule, dims=small(path)))
    given = generate(result.modules["spec"])
    return Program(name, result.modules["ma-tile"], given.arrays, {**given.scalars, **given.sizes})


def at_small_sizes(request: Request, name: str) -> Program:
    """The spec of ``request`` at the aligned sizes of a check with longer reductions, so that pipelines go round.

    The schedule is that of its own sizes where that is legal there.
    """
    sizes = sizes_of(lambda dims: spec_at(request, dims), {})
    chosen = next((v.dims for v in sizes if v.label == "aligned"), sizes[0].dims)
    whole = compile_file(request)
    declared = whole.modules["spec"]
    longer = [_with_long_reductions(request, declared, chosen, long) for long in _LONG]
    for dims in (*longer, chosen):
        made = _sized(request, whole, dims, name)
        if made is None:  # longer reductions break a fact of the spec
            continue
        if _is_short(made):
            few = any(_has_few_tiles(k, made.scalars) for k in made.module.kernels)
            more = _sized(request, whole, _grown(request, declared, chosen, dims, few), name)
            made = made if more is None else more
        return made
    raise AssertionError(request.path)  # the sizes of a check are legal


def at_odd_sizes(request: Request, name: str) -> Program:
    """The spec of ``request`` at the first sizes of a check, which no tile divides; the schedule is as above."""
    first, *_ = sizes_of(lambda dims: spec_at(request, dims), {})
    made = _sized(request, compile_file(request), first.dims, name)
    assert made is not None, request.path
    return made


def at_sizes(request: Request, dims: Mapping[str, int], name: str) -> Program:
    """The spec of ``request`` at ``dims``; the schedule is that of the request, or that of these sizes."""
    sized = replace(request, dims=dict(dims))
    made = _sized(request, _compiled(sized), dims, name)
    assert made is not None, request.path
    return made


def _sized(request: Request, whole: Result, dims: Mapping[str, int], name: str) -> Program | None:
    """The kernels at ``dims`` under the schedule of ``whole``, if it is legal there; None for sizes that are not."""
    sized = replace(request, dims=dict(dims))
    try:
        try:
            result = _compiled(replace(sized, schedule=whole.context.schedule))
        except (ScheduleError, UnsupportedError):
            result = _compiled(sized)
    except DiagnosticError:
        return None
    spec = result.modules["spec"]
    sizes = {n: v for n, v in dims.items() if n in _late(spec)}
    given = generate(spec, sizes=sizes)
    scalars = {**given.scalars, **given.sizes}
    module = with_many_tiles(result.modules["ma-tile"], scalars)
    return _with_ends(Program(name, module, given.arrays, scalars, _at_ends(spec, given)), spec, given)


def _with_ends(p: Program, spec: Spec, given: InputSet) -> Program:
    """``p`` with the lowest integers less one, if it runs so: the module does not know what the spec promises."""
    if p.ends is None:
        return p
    ranges = integer_ranges(spec, given.sizes)
    lower = {n: np.where(x == ranges[n][0], x - 1, x).astype(x.dtype) for n, x in p.ends.items() if n in ranges}
    below = Program(p.name, p.module, p.inputs, p.scalars, {**p.ends, **lower})
    try:
        below.run(p.module, p.module.kernels[0].name, 2)
    except InterpError:  # a read has no condition where its index has a promise
        return p
    return below


def _at_ends(spec: Spec, given: InputSet) -> Mapping[str, Any] | None:
    """The arrays of ``given`` with integers alternately at the two ends of their ranges; None where there are none."""
    ranges = integer_ranges(spec, given.sizes)
    ends = {n: np.resize(ranges[n], x.shape).astype(x.dtype) for n, x in given.arrays.items() if n in ranges}
    with suppress(InputError):
        return keep(spec, {**given.arrays, **ends}, {**given.scalars, **given.sizes}) if ends else None
    return None


def _is_short(p: Program) -> bool:
    """Whether a copy in a loop never runs, or a persistent block has no more tiles than a pipeline has stages."""
    few = any(_has_few_tiles(k, p.scalars) for k in p.module.kernels)
    checked = {recomputing(k.name) for k in p.module.kernels}
    kernels = [k for k in p.module.kernels if k.name not in checked]
    copies = (op for k in kernels for op in walk_ops(k.body) if isinstance(op, AsyncCopy | TmaLoad))
    return few or any(id(op) not in p.executed(kernels[0].name) for op in copies)


def _grown(
    request: Request, declared: Spec, chosen: Mapping[str, int], dims: Mapping[str, int], few_tiles: bool
) -> dict[str, int]:
    """``dims`` with the sizes that are longer than ``chosen``, and those declared like them, times four.

    So are late ones where a block has few tiles.
    """
    whole = {d.name: d.value or d.bound or _GROWTH * dims[d.name] for d in declared.dims if d.name in dims}
    like = {whole[n] for n, v in dims.items() if n in whole and v != chosen[n]}
    late = _late(spec_at(request, dims)) if few_tiles else frozenset[str]()
    grows = {n for n in whole if n in late or whole[n] in like}
    return {n: min(_GROWTH * v, max(whole[n], v)) if n in grows else v for n, v in dims.items()}


def _with_long_reductions(request: Request, declared: Spec, dims: Mapping[str, int], long: int) -> dict[str, int]:
    """``dims`` with ``long`` for the sizes over which products are reduced."""
    whole = {d.name: d.value or d.bound or long + 1 for d in declared.dims}
    usual = _reduced(spec_at(request, dims))
    out = dict(dims)
    for n, v in dims.items():
        if v < long < whole[n]:
            with suppress(DiagnosticError):  # a fact of the spec
                late = any(isinstance(e, Param) and e.name == n for e in usual)
                out[n] = long if late or _reduced(spec_at(request, {**dims, n: v + _STEP})) != usual else v
    return out


def with_many_tiles(module: MemModule, scalars: Mapping[str, Any]) -> MemModule:
    """``module`` whose persistent blocks have more tiles than a pipeline has stages, where one block for all has."""

    def one(k: MemKernel) -> MemKernel:
        return replace(k, blocks=integer(k.cluster)) if _has_few_tiles(k, scalars) else k

    return replace(module, kernels=tuple(map(one, module.kernels)))


def _has_few_tiles(k: MemKernel, scalars: Mapping[str, Any]) -> bool:
    """Whether a persistent block has no more tiles than a pipeline has stages."""
    known = {n: (int(v), int(v)) for n, v in scalars.items() if isinstance(v, int | np.integer)}
    loop = next((op for op in walk_ops(k.body) if isinstance(op, TileSchedulerOp)), None)
    if loop is None:
        return False
    tiles, blocks = bounds(loop.count, known)[0] or 0, bounds(k.blocks, known)[0] or 1
    return tiles // (blocks // k.cluster) <= min((p.stages for p in k.pipelines), default=0)


def _reduced(spec: Spec) -> list[Extent]:
    """The extents over which products are reduced."""
    nodes = [e for d in spec.definitions for e in walk(d.expr) if isinstance(e, Reduce) and e.op == "sum"]
    axes = [a for e in nodes if len(indexed_factors(e.body)) > 1 for a in e.axes]
    return [a.extent for a in axes]


def _late(spec: Spec) -> frozenset[str]:
    return frozenset(d.name for d in spec.runtime_dims)


def _compiled(request: Request) -> Result:
    with patch.object(persistent_grid, "limits", lambda name: replace(limits(name), multiprocessors=_MULTIPROCESSORS)):
        return compile_file(request)


def rules_schedule(path: Path, arch: str, tuned: bool = False) -> Schedule | None:
    """The schedule of the full sizes: by the rules, or that of the shipped database."""
    request = Request(path, arch, until="ma-tile", lookup=tuned_schedule if tuned else None)
    return compile_file(request).context.schedule


def shipped(paths: Sequence[Path] = SPECS, arches: Sequence[str] = ARCHES) -> Iterator[Program]:
    """Every shipped spec for both engines, under the rules' schedule and the tuned one if it differs."""
    for path in paths:
        for arch in arches:
            rules, tuned = rules_schedule(path, arch), rules_schedule(path, arch, tuned=True)
            assert rules is not None
            yield compiled(path, arch, rules, f"{path.stem} {arch}")
            if tuned is not None and tuned != rules:
                yield compiled(path, arch, tuned, f"{path.stem} {arch} tuned")


def variants() -> Iterator[Program]:
    """Schedules that the shipped specs do not use: every option of both engines."""
    yield from _changed("causal_prefill_d64", "sm_90a", {n: c.of for n, c in BACK_TO_BACK.items()})
    yield from _changed("f16", "sm_90a", {n: c.of for n, c in GEMM.items()})
    for arch in ARCHES:
        yield from _changed("global_prefill_d64", arch, _WARP)
        yield from _changed("f16", arch, _WARP)
    yield from _changed("causal_decode", "sm_90a", _SPLIT)


def _warp(**fields: Any) -> Callable[[KernelPlan], KernelPlan]:
    return lambda plan: replace(plan, mapping=replace(WarpPlan(), **fields))


_WARP = {
    "copies without a pipeline": _warp(stages=0),
    "one stage of copies": _warp(stages=1),
    "three stages of copies": _warp(stages=3),
    "double-buffered fragments": _warp(double_buffer_fragments=True),
    "fragments without prefetch": _warp(prefetch_fragments=0),
    "TMA loads of warps": _warp(tma_loads=True),
    "TMA loads of warps, three stages": _warp(tma_loads=True, stages=3),
    "direct stores of warps": _warp(epilogue="direct"),
}
_SPLIT = {
    "split, combined by a second kernel": lambda p: _mapped(p, combine_in_block=False, cluster=1),
    "split, in the order of the launches": lambda p: _mapped(p, combine_in_block=False, dependent_launch=False),
    "split, combined in a block": lambda p: _mapped(p, combine_in_block=True),
    "split, combined in a cluster": lambda p: _mapped(p, combine_in_block=False, cluster=2),
}


def _mapped(plan: KernelPlan, **fields: Any) -> KernelPlan:
    return replace(plan, mapping=replace(plan.mapping, **fields))


def _changed(stem: str, arch: str, changes: Mapping[str, Callable[[KernelPlan], KernelPlan]]) -> Iterator[Program]:
    """``stem`` under each of the changes of its schedule that are legal for it."""
    (path,) = (p for p in SPECS if p.stem == stem)
    base = rules_schedule(path, arch)
    assert base is not None
    for name, change in changes.items():
        schedule = replace(base, kernels=tuple(map(change, base.kernels)))
        with suppress(ScheduleError, UnsupportedError):
            yield compiled(path, arch, schedule, f"{stem} {arch}, {name}")
