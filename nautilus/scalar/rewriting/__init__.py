"""Helpers of the algebraic passes, which map statements, find assumptions about loops, and make kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Var, free_vars, rewrite, substitute
from nautilus.core.index.simplify import Ranges, bounds
from nautilus.core.index.sizes import at_most, extent_expr
from nautilus.core.records.memo import by_identity
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, read_def
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, with_expressions

Rewriter = Callable[[tuple[Loop, ...], "Store | Update"], "Store | Update"]


def map_statements(body: tuple[Stmt, ...], rule: Rewriter, outer: tuple[Loop, ...] = ()) -> tuple[Stmt, ...]:
    """``body`` with every store and update replaced; the same object where nothing changed."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop):
            inner = map_statements(s.body, rule, (*outer, s))
            out.append(s if inner is s.body else replace(s, body=inner))
        else:
            out.append(rule(outer, s))
    return body if all(a is b for a, b in zip(out, body, strict=True)) else tuple(out)


def substituted(body: tuple[Stmt, ...], env: Mapping[str, Expr]) -> tuple[Stmt, ...]:
    """``body`` with variables replaced everywhere, bounds of loops included."""

    def put(e: Expr) -> Expr:
        return substitute(e, env)

    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop):
            out.append(replace(s, lo=put(s.lo), hi=put(s.hi), body=substituted(s.body, env)))
            continue
        out.append(with_expressions(s, put))
    return tuple(out)


def grid_chain(kernel: Kernel) -> tuple[tuple[Loop, ...], tuple[Stmt, ...]]:
    """The perfectly nested grid loops of ``kernel`` and the statements under them."""
    loops = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.GRID:
        loops.append(body[0])
        body = body[0].body
    return tuple(loops), body


def nest(loops: Sequence[Loop], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """``body`` under ``loops`` (outermost first)."""
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body


def with_body(k: Kernel, body: tuple[Stmt, ...]) -> Kernel:
    """``k`` with another body; ``k`` itself where it is the same object."""
    return k if body is k.body else replace(k, body=body)


def map_kernels(program: Program, rule: Callable[[Kernel], Kernel]) -> Program:
    """``program`` with every kernel replaced; the same object where nothing changed."""
    kernels = tuple(rule(k) for k in program.kernels)
    if all(a is b for a, b in zip(kernels, program.kernels, strict=True)):
        return program
    return replace(program, kernels=kernels)


def loop_assumptions(loops: Sequence[Loop]) -> tuple[Ranges, tuple[Expr, ...]]:
    """What loops say about their variables, as ranges and assumptions for ``core.index.simplify``.

    A bound that is not a number becomes a fact.
    """
    ranges: dict[str, tuple[int, int]] = {}
    assumptions: list[Expr] = []
    for loop in loops:
        var = Var(loop.var)
        lo, _ = bounds(loop.lo, ranges, assumptions)
        _, hi = bounds(loop.hi, ranges, assumptions)
        if lo is not None and hi is not None:
            ranges[loop.var] = (lo, max(lo, hi - 1))
        if not isinstance(loop.lo, Const):
            assumptions.append(calc("le", loop.lo, var))
        if not isinstance(loop.hi, Const):
            assumptions.append(calc("lt", var, loop.hi))
    return ranges, tuple(assumptions)


def axis_assumptions(axes: Iterable[Axis]) -> tuple[Ranges, tuple[Expr, ...]]:
    """The ranges and assumptions of :func:`loop_assumptions`, for axes that start at 0."""
    ranges: dict[str, tuple[int, int]] = {}
    assumptions: list[Expr] = []
    for a in axes:
        if isinstance(a.extent, int):
            ranges[a.name] = (0, a.extent - 1)
        else:
            ranges[a.name] = (0, max(at_most(a.extent) - 1, 0))
            assumptions.append(calc("lt", Var(a.name), a.extent))
    return ranges, tuple(assumptions)


def find_defs(program: Program) -> dict[str, Def]:
    """The definitions of those kernels that are still unfused, by name."""
    return dict(_find_defs(program))


@by_identity(64)
def _find_defs(program: Program) -> dict[str, Def]:
    found: dict[str, Def] = {}
    for k in program.kernels:
        try:
            d = read_def(program, k)
        except ScheduleError:
            continue
        found[d.name] = d
    return found


def all_defs(program: Program) -> dict[str, Def] | None:
    """The definitions, if each kernel is an unfused one that writes its buffer once at its own axes; else None."""
    found = find_defs(program)
    return found if len(found) == len(program.kernels) and all(d.at is None for d in found.values()) else None


def kernel_of(d: Def) -> Kernel:
    """The unfused kernel that computes ``d``."""
    index = d.index
    if d.scatter is not None:
        body: tuple[Stmt, ...] = (Update(d.name, d.scatter, index, d.value, d.guard, d.span, True),)
    elif d.op is None:
        body = (Store(d.name, index, d.value, d.guard, d.span),)
    else:
        update = Update(d.name, d.op, index, d.value, d.guard, d.span)
        body = (Store(d.name, index, d.init(), None, d.span), *_nest(d.red, Kind.RED, (update,)))
    return Kernel(d.name, (), _nest(d.par, Kind.PAR, body), d.span)


def put_defs(program: Program, name: str, defs: Sequence[Def]) -> Program:
    """``program`` with ``defs`` in the place of the kernel ``name``.

    The buffer of that name stays, also where none of ``defs`` has it any more.
    """
    new = {d.name: d.buffer for d in defs}
    known = {b.name for b in program.buffers}
    buffers = (*(new.get(b.name, b) for b in program.buffers), *(b for b in new.values() if b.name not in known))
    kernels = tuple(x for k in program.kernels for x in (map(kernel_of, defs) if k.name == name else (k,)))
    return replace(program, buffers=buffers, kernels=kernels)


def equal_temp(program: Program, temp: Def, before: str) -> str | None:
    """The temp of ``program`` that has the elements of ``temp``, and is computed before the kernel ``before``."""
    if temp.is_reduction or temp.guard is not None or temp.at is not None:
        return None
    for name, d in find_defs(program).items():
        if name == before:
            return None
        shape = d.buffer.shape, d.buffer.dtype, d.buffer.support
        plain = not d.is_reduction and d.guard is None and d.at is None and d.buffer.space is Space.TEMP
        if not plain or shape != (temp.buffer.shape, temp.buffer.dtype, temp.buffer.support):
            continue
        if substitute(d.value, {a.name: Var(b.name) for a, b in zip(d.par, temp.par, strict=True)}) == temp.value:
            return name
    return None


def turned(program: Program, d: Def, places: Sequence[int]) -> Program:
    """``program`` with the axes ``places`` of ``d``, in this order, wherever definitions read it."""

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer != d.name:
            return None
        return replace(e, index=tuple(rewrite(e.index[n], rule) for n in places))

    axes = tuple(d.par[n] for n in places)
    buffer = replace(d.buffer, shape=tuple(a.extent for a in axes))
    program = put_defs(program, d.name, (replace(d, par=axes, buffer=buffer),))
    for r in find_defs(program).values():
        if any(ld.buffer == d.name for ld in r.reads()):
            guard = None if r.guard is None else rewrite(r.guard, rule)
            at = None if r.at is None else tuple(rewrite(e, rule) for e in r.at)
            program = put_defs(program, r.name, (replace(r, value=rewrite(r.value, rule), guard=guard, at=at),))
    return program


#: combiners of which partial results may be combined in any grouping
ASSOCIATIVE = ("sum", "prod", "max", "min", "any", "all")


def in_two_steps(program: Program, d: Def, axes: Sequence[Axis]) -> tuple[Def, Def]:
    """The partial results of the reduction ``d`` for every element of ``axes``, and the reduction of these.

    ``axes`` are some of the axes that ``d`` reduces.  The condition of ``d`` stays with the partial results.
    """
    par = (*axes, *d.par)
    shape = tuple(a.extent for a in par)
    buffer = Buffer(fresh_name(program, f"{d.name}_parts"), d.value.dtype, shape, Space.TEMP, d.span)
    part = replace(d, name=buffer.name, buffer=buffer, par=par, red=tuple(a for a in d.red if a not in axes))
    total: Expr = Load(buffer.name, tuple(Var(a.name) for a in par), buffer.dtype, d.span)
    return part, replace(d, red=tuple(axes), value=total, guard=None)


def reduction_at(
    program: Program, d: Def, ld: Load, axes: Iterable[Axis], guard: Expr | None, others: Sequence[Def]
) -> Def:  # fmt: skip
    """The reduction ``d`` at the element ``ld`` of it alone, under ``guard``, for each point of ``axes`` in the index.

    Its name is one that neither ``program`` nor ``others`` have.
    """
    used = free_vars(ld)
    par = tuple(a for a in axes if a.name in used)
    own = {a.name for a in par}
    taken = {a.name for a in d.axes} | used
    red = tuple(replace(a, name=unused(a.name, taken - {a.name} | own)) for a in d.red)
    at: dict[str, Expr] = {a.name: e for a, e in zip(d.par, ld.index, strict=True)}
    at |= {a.name: Var(b.name) for a, b in zip(d.red, red, strict=True)}
    name = fresh_name(program, f"{d.name}_at", [x.name for x in others])
    buffer = Buffer(name, d.buffer.dtype, tuple(a.extent for a in par), Space.TEMP, ld.span)
    return Def(name, buffer, par, red, d.op, substitute(d.value, at), guard, ld.span)


def _nest(axes: Sequence[Axis], kind: Kind, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for a in reversed(axes):
        body = (Loop(a.name, integer(0), extent_expr(a.extent), kind, body, a.span),)
    return body


def fresh_name(program: Program, name: str, others: Collection[str] = ()) -> str:
    """``name``, or with the first number that no buffer, param or loop has, and none of ``others``."""
    taken = {b.name for b in program.buffers} | {p.name for p in program.params} | set(others)
    return unused(name, taken, first=2)
