"""Copies of ops under other names, which passes need that move work between iterations or repeat it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Param, Ref, Var, free_vars, refs, rewrite, substitute, walk
from nautilus.core.index.simplify import Ranges, bounds, simplify
from nautilus.core.ops import Kind, Rules, map_fields, map_regions
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.text.names import fresh
from nautilus.core.types import DType
from nautilus.ma_tile.ir.async_ops import CONSUMER
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import (
    ConstOp,
    ForOp,
    Frag,
    LetOp,
    MapOp,
    MemKernel,
    MemOp,
    RolesOp,
    Slot,
    TileSchedulerOp,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import bound, expressions, rebuild, variables

_BEHIND = "behind"  # the number of blocks after this one


@dataclass(frozen=True, slots=True)
class Renaming:
    """The names in a copy of some ops: fragments by name, uniform variables by expression."""

    frags: Mapping[str, Frag] = field(default_factory=dict)
    variables: Mapping[str, Expr] = field(default_factory=dict)

    def frag(self, f: Frag) -> Frag:
        """``f`` under its name in the copy."""
        return self.frags.get(f.name, f)

    def expr(self, e: Expr) -> Expr:
        """``e`` with variables and references replaced; untouched where it mentions none of them."""
        if self.variables.keys().isdisjoint(free_vars(e)) and self.frags.keys().isdisjoint(refs(e)):
            return e

        def rule(n: Expr) -> Expr | None:
            if isinstance(n, Var):
                return self.variables.get(n.name)
            if isinstance(n, Ref) and n.name in self.frags:
                return Ref(self.frags[n.name].name, n.dtype)
            return None

        new = rewrite(e, rule)
        return simplify(new) if free_vars(e) & self.variables.keys() else new

    def operand(self, x: Frag | Slot) -> Frag | Slot:
        """An operand under its other name; of a slot, its stage."""
        return self.frag(x) if isinstance(x, Frag) else self.slot(x)

    def slot(self, s: Slot) -> Slot:
        """``s`` with its stage renamed."""
        return replace(s, stage=self.expr(s.stage))

    def op(self, op: MemOp) -> MemOp:
        """``op``, everything inside it included, under the other names."""
        rules: Rules = {Kind.RESULT: self.frag, Kind.OPERAND: self.operand, Kind.EXPR: self.expr, Kind.SLOT: self.slot}
        new: MemOp = map_regions(map_fields(op, rules), self.ops)
        return new

    def ops(self, body: Iterable[MemOp]) -> tuple[MemOp, ...]:
        """``body`` with the names of the copy."""
        return tuple(self.op(x) for x in body)


class Names:
    """Names of fragments and variables that a kernel does not use yet."""

    def __init__(self, kernel: MemKernel) -> None:
        self.frags = {f.name for op in walk_ops(kernel.body) for f in bound(op)}
        self.variables = {name for name, _ in kernel.decode} | {"block", "consumer"}
        self.variables |= {v for c in kernel.pipelines for v in (c.name, c.stage, c.phase)}
        for op in walk_ops(kernel.body):
            self.variables |= set(variables(op))

    def frag(self, like: Frag, suffix: str) -> Frag:
        """A fragment as ``like`` under a name of its own."""
        return replace(like, name=fresh(f"{like.name}_{suffix}", self.frags))

    def variable(self, name: str) -> str:
        """A name for a variable, like ``name``, that is in use from now on."""
        return fresh(name, self.variables)


def with_variables(body: tuple[MemOp, ...], new: Mapping[str, str]) -> tuple[MemOp, ...]:
    """``body`` in which the variables of loops and lets have the names ``new``, at their definitions."""
    return rebuild(body, lambda op: (map_fields(op, {Kind.VARIABLE: lambda v: new.get(v, v)}),))


@dataclass(frozen=True, slots=True)
class Step:
    """The names of one step: ``frags`` are those of its fragments, which a caller may change; ``rename`` reads them."""

    frags: dict[str, Frag]
    inner: dict[str, str]
    rename: Renaming

    def op(self, x: MemOp) -> MemOp:
        """``x`` in this step."""
        (made,) = with_variables(self.rename.ops((x,)), self.inner)
        return made


def step(loop: ForOp, at: Expr, state: Sequence[Frag], names: Names, suffix: str) -> Step:
    """The step ``at`` of ``loop``, whose carried values are ``state``."""
    frags = {a.name: s for (a, _), s in zip(loop.carried, state, strict=True)}
    frags |= {f.name: names.frag(f, suffix) for x in walk_ops(loop.body) for f in bound(x)}
    inner = {v: names.variable(v) for x in walk_ops(loop.body) for v in variables(x)}
    return Step(frags, inner, Renaming(frags, {loop.var: at, **{v: Var(new) for v, new in inner.items()}}))


def left_over(loop: ForOp, low: Expr, states: Sequence[Frag], names: Names) -> ForOp:
    """The steps of ``loop`` from ``low`` on, whose carried values are ``states`` before them."""
    frags = {f.name: names.frag(f, "left") for x in walk_ops(loop.body) for f in bound(x)}
    frags |= {a.name: names.frag(a, "left") for a, _ in loop.carried}
    var = names.variable(loop.var)
    inner = {v: names.variable(v) for x in walk_ops(loop.body) for v in variables(x)}
    rename = Renaming(frags, {loop.var: Var(var), **{v: Var(new) for v, new in inner.items()}})
    carried = tuple((rename.frag(a), s) for (a, _), s in zip(loop.carried, states, strict=True))
    return replace(
        loop, var=var, lo=low, carried=carried, body=with_variables(rename.ops(loop.body), inner),
        yields=tuple(map(rename.frag, loop.yields)),
    )  # fmt: skip


def kernel_apart(kernel: MemKernel, other: MemKernel) -> MemKernel:
    """``kernel`` with fragments, layouts, shared buffers and inner variables that ``other`` has no namesakes of.

    Grid variables keep their names.
    """
    theirs = Names(other)
    smem = {s.name for s in other.smem}
    buffers = {s.name: fresh(s.name, smem) for s in kernel.smem}
    taken = set(other.layouts) | set(kernel.layouts)
    layouts = {
        name: name if other.layouts.get(name, layout) == layout else fresh(name, taken)
        for name, layout in kernel.layouts.items()
    }
    frags: dict[str, Frag] = {}
    inner: dict[str, str] = {}
    for op in walk_ops(kernel.body):
        for f in bound(op):
            frags[f.name] = replace(f, name=fresh(f.name, theirs.frags), layout=layouts[f.layout])
        for v in variables(op):
            inner.setdefault(v, fresh(v, theirs.variables))
    rename = Renaming(frags, {v: Var(new) for v, new in inner.items() if v != new})

    def slot(x: Frag | Slot) -> Frag | Slot:
        return replace(x, buffer=buffers[x.buffer]) if isinstance(x, Slot) else x

    rules = {Kind.VARIABLE: inner.__getitem__, Kind.LAYOUT: layouts.__getitem__, Kind.SCRATCH: buffers.__getitem__}

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        return (map_fields(op, {**rules, Kind.SLOT: slot, Kind.OPERAND: slot}),)

    body = rebuild(rename.ops(kernel.body), rule)
    new = {layouts[name]: layout for name, layout in kernel.layouts.items()}
    return replace(
        kernel, body=body, layouts=new, smem=tuple(replace(s, name=buffers[s.name]) for s in kernel.smem)
    )  # fmt: skip


def without_axis_names(kernel: MemKernel, axes: set[str]) -> MemKernel:
    """``kernel`` with other names for the grid variables that are called as one of ``axes``."""
    taken = Names(kernel).variables | axes
    new = {name: fresh(f"{name}_block", taken) for name, _ in kernel.decode if name in axes}
    rename = Renaming(variables={name: Var(other) for name, other in new.items()})
    decode = tuple((new.get(name, name), rename.expr(e)) for name, e in kernel.decode)
    return replace(kernel, decode=decode, body=rename.ops(kernel.body)) if new else kernel


def axes_of(layouts: Mapping[str, FragLayout]) -> set[str]:
    """The axes that ``layouts`` distribute."""
    return {axis for x in layouts.values() for axis in x.axes}


def layout_name(layouts: dict[str, FragLayout], layout: FragLayout, hint: str) -> str:
    """The name that ``layout`` has in ``layouts``; where it has none it joins them, as ``hint`` or with a number."""
    for name, known in layouts.items():
        if known == layout:
            return name
    name = fresh(hint, set(layouts))
    layouts[name] = layout
    return name


def each_block(body: tuple[MemOp, ...], f: Callable[[tuple[MemOp, ...]], tuple[MemOp, ...]]) -> tuple[MemOp, ...]:
    """``f`` of every block of ops under ``body``, the innermost first, and of ``body`` itself."""
    return f(tuple(map_regions(op, lambda inner: each_block(inner, f)) for op in body))


@by_identity(8)
def uniform_ranges(kernel: MemKernel) -> Ranges:
    """Ranges of the uniform variables, as far as the launch says (both ends inclusive).

    A name that roles or loops give to several variables has the range of all of them.  The number of a tile, which
    one thread fetches, has that of the tiles: the loop ends before any other.
    """
    out: dict[str, tuple[int, int]] = {}
    unknown = set[str]()
    tiles = {op.var for op in walk_ops(kernel.body) if isinstance(op, TileSchedulerOp)}

    def note(name: str, low: int | None, high: int | None) -> None:
        if low is None or high is None or low > high:
            unknown.add(name)
            out.pop(name, None)
        elif name not in unknown:
            before = out.get(name, (low, high))
            out[name] = (min(low, before[0]), max(high, before[1]))

    last = bounds(kernel.blocks)[1]
    note("block", 0, None if last is None else last - 1)
    note(CONSUMER, *_consumers(kernel))
    for name, e in kernel.decode:
        note(name, *bounds(e, out))
    for op in walk_ops(kernel.body):
        match op:
            case LetOp(var=name, expr=e) if name not in tiles:
                note(name, *bounds(e, out))
            case TileSchedulerOp(var=name, count=e):
                last = bounds(e, out)[1]
                note(name, 0, None if last is None else last - 1)
    return MappingProxyType(out)


def _consumers(kernel: MemKernel) -> tuple[int, int]:
    """The range of the number of a consumer: of the whole block, or of the role with the most of them."""
    counts = [r.consumers for op in kernel.body if isinstance(op, RolesOp) for r in op.roles]
    return 0, max([kernel.consumers, *counts]) - 1


def known_ranges(kernel: MemKernel) -> dict[str, tuple[int, int]]:
    """Ranges of the consumer, the block number and the grid variables."""
    out = {CONSUMER: _consumers(kernel)}
    last = bounds(kernel.blocks)[1]
    if last is not None:
        out["block"] = (0, max(last - 1, 0))
    for name, e in kernel.decode:
        low, high = bounds(simplify(e, out), out)
        if last is not None and (low is None or low < 0):  # as of a variable that falls from the last block to 0
            behind = calc("sub", calc("sub", kernel.blocks, 1), Var(_BEHIND))
            upwards, after = substitute(e, {"block": behind}), {**out, _BEHIND: (0, max(last - 1, 0))}
            low = max((x for x in (low, bounds(simplify(upwards, after), after)[0]) if x is not None), default=None)
        if low is not None and high is not None:
            out[name] = (low, high)
    return out


def launch_facts(kernel: MemKernel) -> tuple[Expr, ...]:
    """Sizes are at least 1 in a block where the kernel has no blocks without them."""

    def is_needed(p: Param) -> bool:
        return simplify(rewrite(kernel.blocks, lambda n: integer(0) if n == p else None)) == integer(0)

    sizes = {n for n in walk(kernel.blocks) if isinstance(n, Param) and n.most is not None}
    return tuple(calc("ge", p, 1) for p in sorted(sizes, key=lambda p: p.name) if is_needed(p))


def chosen_ranges(kernel: MemKernel) -> dict[str, tuple[int, int]]:
    """The ranges of values that a condition chooses from two numbers, as a count of iterations 0 or 1, by ``%name``."""
    constants = {op.result.name: op.value for op in walk_ops(kernel.body) if isinstance(op, ConstOp)}
    out: dict[str, tuple[int, int]] = {}
    for op in walk_ops(kernel.body):
        match op:
            case MapOp(op="select", args=(_, a, b), result=r) if r.type.dtype is DType.I32:
                found = [int(constants[x.name]) for x in (a, b) if x.name in constants]
                if len(found) == 2:
                    out[f"%{r.name}"] = (min(found), max(found))
    return out


def used_lets(body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
    """``body`` without each ``let`` whose variable is not used."""
    while True:
        used = {v for op in walk_ops(body) for e in expressions(op) for v in free_vars(e)}
        new = rebuild(body, lambda op, used=used: () if isinstance(op, LetOp) and op.var not in used else (op,))  # type: ignore[misc]
        if new == body:
            return body
        body = new
