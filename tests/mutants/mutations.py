"""The mutants of a module: one op deleted, or one field of it changed.

Which ops and fields take part follows from their declarations: ops with an effect, ops that name an mbarrier, and the
flags and numbers of asynchronous operations.  The fields in :data:`HINTS` change speed only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.ops import Kind, declaration, regions
from nautilus.core.types import DType
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_WARPS, WgWait
from nautilus.ma_tile.ir.instruction_tables import WGMMA
from nautilus.ma_tile.ir.ops import Frag, MbarWait, MemKernel, MemModule, MemOp, MmaOp, Role, RolesOp, SharedStore
from nautilus.ma_tile.text import format_op

#: fields that a compiler or a cache may use and that order nothing
HINTS = frozenset({"volatile", "stream", "unroll", "ahead"})
#: what a number is changed by; 1 where it is not listed
_STEPS = {"threads": 32, "bytes": 16, "registers": 8}
#: the weaker value of each flag
_WEAKER = {"read": True, "relaxed": True, "cluster": False, "is_async": True, "team": False}
#: ops without an effect of their own whose fields belong to asynchronous work
_ASYNCHRONOUS: dict[type, tuple[str, ...]] = {MmaOp: ("is_async",), SharedStore: ("block",)}
#: declared parts of a kernel, and the fields that are counts of threads, arrivals or stages
_PARTS: dict[str, dict[str, tuple[int, ...]]] = {
    "mbars": {"arrivals": (-1, 1), "stages": (-1,)},
    "pipelines": {"stages": (-1, 1)},
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """``module`` with the change ``change`` of the op or part ``subject`` (its class); ``text`` shows it.

    ``key`` is the same for mutants that differ in names only and stand in the same context.  ``kernel`` has the change.
    ``op``: the one that is changed; None for a part.
    """

    kernel: str
    subject: str
    change: str
    text: str
    key: tuple[str, ...]
    module: MemModule
    op: MemOp | None = None

    @property
    def kind(self) -> str:
        """The row of a table of results."""
        return f"{self.subject}: {self.change}"


@dataclass(frozen=True, slots=True)
class _Place:
    """An op, the classes and roles around it, and its neighbours; ``threads`` of one consumer run it.

    ``alone``: there is no other consumer, so that its number is 0.
    """

    op: MemOp
    context: tuple[str, ...]
    threads: int
    alone: bool


def mutants(module: MemModule) -> Iterator[Mutant]:
    """All mutants of ``module``, kernel by kernel, in program order."""
    for number, kernel in enumerate(module.kernels):
        for changed, subject, change, text, context, op in _kernel_mutants(kernel):
            kernels = tuple(changed if n == number else k for n, k in enumerate(module.kernels))
            key = (subject, change, *context)
            yield Mutant(kernel.name, subject, change, text, key, replace(module, kernels=kernels), op)


_Found = tuple[MemKernel, str, str, str, tuple[str, ...], MemOp | None]


def _kernel_mutants(k: MemKernel) -> Iterator[_Found]:
    for place, path in _places(k.body, (), (), 32 * k.warps // k.consumers, k.consumers == 1):
        for change, new in _changes(k, place):
            body = _replaced(k.body, path, new)
            context = (_without_names(place.op), *place.context)
            yield replace(k, body=body), type(place.op).__name__, change, format_op(place.op), context, place.op
    for name, counts in _PARTS.items():
        parts = getattr(k, name)
        for n, part in enumerate(parts):
            for f, steps in counts.items():
                for by in steps:
                    new_part = replace(part, **{f: getattr(part, f) + by})
                    new_parts = (*parts[:n], new_part, *parts[n + 1 :])
                    change = f"{f} {by:+d}"
                    context = (part.name, str(getattr(part, f)), str(k.cluster))
                    changed: Any = replace(k, **{name: new_parts})  # type: ignore[arg-type]
                    yield changed, type(part).__name__, change, str(part), context, None
    yield from _role_mutants(k)


def _role_mutants(k: MemKernel) -> Iterator[_Found]:
    for at, op in enumerate(k.body):
        for n, role in enumerate(op.roles if isinstance(op, RolesOp) else ()):
            for change, new in _role_changes(role, scarce=k.warps > 2 * GROUP_WARPS):
                assert isinstance(op, RolesOp)
                roles = replace(op, roles=(*op.roles[:n], new, *op.roles[n + 1 :]))
                body = (*k.body[:at], roles, *k.body[at + 1 :])
                context = (role.name, str(role.registers), str(role.consumers), str(k.warps))
                yield replace(k, body=body), "Role", change, f"role {role.name}", context, None


def _role_changes(role: Role, scarce: bool) -> Iterator[tuple[str, Role]]:
    if role.registers is not None and scarce:
        yield "registers 256", replace(role, registers=256)
    if role.registers is not None and scarce and role.single:  # it gives up registers that others take
        yield "no registers", replace(role, registers=None, change=None)
    if role.consumers > 1:
        yield "consumers -1", replace(role, consumers=role.consumers - 1)


def _without_names(op: MemOp) -> str:
    """The text of ``op`` without the names of fragments and memory."""
    return re.sub(r"%\w+", "%", re.sub(r"\w+\[", "[", format_op(op).split("{")[0].strip()))


# -- places -----------------------------------------------------------------------------------

_Path = tuple[tuple[int, int], ...]  # of each level: the index of the op, and of the region inside it


def _places(
    body: tuple[MemOp, ...], names: tuple[str, ...], path: _Path, threads: int, alone: bool
) -> Iterator[tuple[_Place, _Path]]:
    """Every op that takes part, with its place as a path of indices."""
    for n, op in enumerate(body):
        around = tuple(type(body[i]).__name__ if 0 <= i < len(body) else "" for i in (n - 1, n + 1))
        if _takes_part(op) and not _repeated(body, n):
            yield _Place(op, (*names, *around), threads, alone), (*path, (n, 0))
        for r, inner in enumerate(regions(op)):
            name, own, one = type(op).__name__, threads, alone
            if isinstance(op, RolesOp):
                role = op.roles[r]
                own, one = 32 * (role.last_warp - role.first_warp) // role.consumers, role.consumers == 1
                name = role.name
            yield from _places(inner, (*names, name), (*path, (n, r)), own, one)


def _repeated(body: tuple[MemOp, ...], n: int) -> bool:
    """Whether op ``n`` repeats a wait in front of a volatile one, which only keeps the assembler from moving that."""
    op, behind = body[n], body[n + 1 : n + 2]
    volatile = any(isinstance(x, WgWait) and x.volatile for x in behind)
    return volatile and isinstance(op, MbarWait) and op in body[:n]


def _takes_part(op: MemOp) -> bool:
    found = declaration(type(op))
    if isinstance(op, MmaOp):
        return op.instr in WGMMA
    return bool(found.effects or found.names(Kind.BARRIER)) or type(op) in _ASYNCHRONOUS


def _replaced(body: tuple[MemOp, ...], path: _Path, new: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
    """``body`` with the op at ``path`` replaced by ``new``."""
    (n, r), *rest = path
    if not rest:
        return (*body[:n], *new, *body[n + 1 :])
    op: Any = body[n]
    if isinstance(op, RolesOp):
        role = op.roles[r]
        changed = replace(role, body=_replaced(role.body, tuple(rest), new))
        op = replace(op, roles=(*op.roles[:r], changed, *op.roles[r + 1 :]))
    else:
        op = replace(op, body=_replaced(op.body, tuple(rest), new))
    return (*body[:n], op, *body[n + 1 :])


# -- changes ----------------------------------------------------------------------------------


def _changes(k: MemKernel, place: _Place) -> Iterator[tuple[str, tuple[MemOp, ...]]]:
    op = place.op
    found = declaration(type(op))
    if found.effects:
        yield "deleted", ()
    for f in fields(op):
        role, value = found.roles[f.name], getattr(op, f.name)
        chosen = found.effects or role.kind is Kind.BARRIER or f.name in _ASYNCHRONOUS.get(type(op), ())
        if not chosen or f.name in HINTS or f.name == "span":
            continue
        for change, new in _values(k, place, f.name, role.kind, value):
            changed: Any = replace(op, **{f.name: new})
            yield f"{f.name} {change}", (changed,)


def _values(k: MemKernel, place: _Place, name: str, kind: Kind, value: Any) -> Iterator[tuple[str, Any]]:
    """Other values of a field."""
    op = place.op
    match value:
        case bool():
            if value is not _WEAKER[name]:
                yield f"{not value}", not value
        case int() if kind is Kind.ATTRIBUTE:
            by = _STEPS.get(name, 1)
            yield f"+{by}", value + by
            if value and name != "pending":  # a wait for more groups is no fault
                yield f"-{by}", value - by
        case "thread" | "warp":
            yield "flipped", "warp" if value == "thread" else "thread"
        case str() if kind is Kind.BARRIER:
            yield from (("other", other) for other in _others(k, value)[:1])
        case (str() as own, stage) if kind is Kind.BARRIER:
            yield from ((f"stage {change}", (own, e)) for change, e in _expressions(k, own, "stage", stage))
            yield from (("other", (other, stage)) for other in _others(k, own)[:1])
            yield "none", None
        case _ if name == "number":
            yield from _numbers(place, value)
        case _ if kind is Kind.EXPR and value is not None:
            yield from _expressions(k, getattr(op, "mbar", None), name, value)
        case (Frag(), *_):
            for n in range(len(value)):
                yield f"without one of {len(value)}", (*value[:n], *value[n + 1 :])
        case None if kind is Kind.EXPR:
            yield "two", Const(2, DType.I32)
        case _:
            pass


def _numbers(place: _Place, number: Expr) -> Iterator[tuple[str, Expr]]:
    """Other numbers of a named barrier; that another one is free shows only where other threads use the first one."""
    if number == Const(0, DType.I32) and getattr(place.op, "threads", None) is None:
        return
    shared = substitute(number, {CONSUMER: Const(0, DType.I32)})
    if shared != number and not place.alone:
        yield "of consumer 0", simplify(shared)
    if number != Const(0, DType.I32):
        yield "0", Const(0, DType.I32)
    if getattr(place.op, "threads", None) != place.threads:
        yield "unused", Const(15, DType.I32)


def _others(k: MemKernel, name: str) -> list[str]:
    """Other mbarriers, those with as many stages first."""
    own = next((m.stages for m in k.mbars if m.name == name), 0)
    return sorted((m.name for m in k.mbars if m.name != name), key=lambda n: _stages(k, n) != own)


def _stages(k: MemKernel, mbar: str) -> int:
    return next(m.stages for m in k.mbars if m.name == mbar)


def _expressions(k: MemKernel, mbar: str | None, name: str, e: Expr) -> Iterator[tuple[str, Expr]]:
    """Other values of an integer expression: the next one, or the other one of two."""
    if e.dtype is DType.BOOL:
        yield "negated", calc("not", e)
        return
    one = Const(1, e.dtype)
    if name == "parity":
        yield "other", calc("sub", one, e)
        return
    if name == "stage" and mbar is not None:
        stages = _stages(k, mbar)
        if stages > 1:
            yield "+1", calc("mod", calc("add", e, one), Const(stages, e.dtype))
        return
    yield "+1", calc("add", e, one)
