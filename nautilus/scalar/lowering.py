"""Spec to Scalar IR: one kernel a definition, one more for every reduction inside an expression.

The definitions of a recurrence are one kernel together (:mod:`nautilus.scalar.analysis.states.recurrences`), with the
reductions in them that read a member.

* A reduction inside an expression is hoisted, innermost first, into a temp over its free index
  variables, named after the definition: ``P_max``, ``P_sum``.  Reductions that are equal up to the
  names of variables are computed once, across definitions too.
* A definition that *is* a reduction is updated in place, where its storage type is the type that the
  reduction accumulates in; else in ``O_acc``, and then stored.
* A reduction's condition is the guard of its update, and so is a ``select`` with the identity in it
  (:mod:`nautilus.scalar.analysis.masking`).
* So is the condition of a ``select`` with 0 in a definition that a product in a sum reads.
* A hoisted reduction is computed at every value of its free variables, also where the expression
  around it would not have read.  Unless its reads are certainly in range, the conditions around it
  that contain its variables go into its guard.

* An index variable that has the name of an argument, or whose tiles would be counted by a variable of that name
  (``b0`` for ``b``, :mod:`nautilus.scalar.analysis.derived_names`), has another name.

Every other kernel has one of the two shapes that :mod:`nautilus.scalar.analysis.definitions` reads back.  Spans are
those of the reduction or definition that a statement comes from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from math import inf

from nautilus.core.buffers import Buffer, Fact, ScalarParam, Space
from nautilus.core.expr.build import integer
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import (
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Param,
    Reduce,
    Var,
    children,
    free_vars,
    identity,
    rewrite,
    substitute,
    walk,
    with_children,
)
from nautilus.core.index.simplify import conjuncts
from nautilus.core.index.sizes import MAX_DIM, Extent
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.core.text.names import unused, word
from nautilus.core.types import DType
from nautilus.frontend.spec import Definition, Spec
from nautilus.scalar.analysis.definitions import read_def, reads_of
from nautilus.scalar.analysis.masking import (
    Presence,
    absorb_selects,
    certainly_in_range,
    guarded_terms,
    negation,
    presence,
)
from nautilus.scalar.analysis.states.recurrences import independent
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update
from nautilus.scalar.rewriting.recurrences import recurrence_kernel

Scope = Mapping[str, Extent]  # index variable -> extent, outer first


def lower(spec: Spec) -> Program:
    """The program that computes ``spec``, unfused."""
    return _Lowering(spec).program()


def _params(spec: Spec) -> list[ScalarParam]:
    """The arguments that are numbers: scalars, sizes and strides that are known only at launch."""
    params = [ScalarParam(s.name, s.dtype, s.default, span=s.span) for s in spec.scalars]
    params += [
        ScalarParam(d.name, DType.I32, None, d.bound or MAX_DIM, d.span, d.least, d.multiple, d.device)
        for d in spec.runtime_dims
    ]
    params += [ScalarParam(p.name, p.dtype, None, p.most, p.span, p.least, p.multiple) for p in spec.stride_params]
    return params


def _multiple(p: Param) -> Expr:
    """The condition that ``p`` is a multiple of what the kernels rely on."""
    rest = Op("mod", (p, Const(p.multiple, p.dtype)), p.dtype)
    return Op("eq", (rest, Const(0, p.dtype)), DType.BOOL)


@dataclass(frozen=True, slots=True)
class _Key:
    """A reduction up to the names of its variables: they are numbered in order of occurrence."""

    op: str
    extents: tuple[Extent, ...]
    body: Expr
    guard: Expr | None


@dataclass(slots=True)
class _Lowering:
    spec: Spec
    buffers: list[Buffer] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    shapes: dict[str, tuple[Extent, ...]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    present: dict[tuple[str, float], Presence] = field(default_factory=dict)
    shared: dict[_Key, tuple[Buffer, tuple[int, ...]]] = field(default_factory=dict)

    def program(self) -> Program:
        params = _params(self.spec)
        spec = _apart_from_arguments(self.spec, frozenset(p.name for p in params))
        for t in spec.inputs:
            self.buffer(Buffer(t.name, t.dtype, t.shape, Space.INPUT, t.span, strides=t.strides))
        for t in spec.outputs:
            self.buffer(Buffer(t.name, t.dtype, t.shape, Space.OUTPUT, t.span, strides=t.strides))
        self.names |= {p.name for p in params} | {d.name for d in spec.definitions}
        self.names |= {a.name for d in spec.definitions for a in d.axes}
        for d in spec.definitions:
            if d.recurrence is None:
                self.definition(d)
            elif d.name == d.recurrence.members[0]:
                self.recurrence([spec.definition(n) for n in d.recurrence.members])
        # Arguments first, temps in the order of their kernels.
        order = sorted(self.buffers, key=lambda b: b.space is Space.TEMP)
        facts = tuple(Fact(f.condition, f.span) for f in spec.facts if not f.promised)
        facts += tuple(Fact(_multiple(p), p.span) for p in spec.stride_params if p.multiple > 1)
        return Program(word(spec.name), tuple(order), tuple(params), tuple(self.kernels), facts)

    def buffer(self, b: Buffer) -> Buffer:
        self.buffers.append(b)
        self.shapes[b.name] = b.shape
        self.names.add(b.name)
        return b

    def fresh(self, name: str) -> str:
        """``name``, or with the first number that makes it new."""
        return unused(name, self.names, first=2)

    # -- definitions ------------------------------------------------------------------------------
    def definition(self, d: Definition) -> None:
        scope = {a.name: a.extent for a in d.axes}
        expr = _without_rounding(d)
        if isinstance(expr, Reduce):
            found = self.hoist_inside(expr, scope, (), d.name)
            free = [v for v in scope if v in free_vars(found)]
            if d.stored is found.dtype and len(free) == len(scope) and self.key(found, scope) not in self.shared:
                target = self.target(d)
                self.reduction(found, target, tuple(scope), scope)
                return
            suffix = "acc" if len(free) == len(scope) else expr.op
            value: Expr = self.temp(found, scope, (), f"{d.name}_{suffix}")
        else:
            value = self.hoist(expr, scope, (), d.name)
        target = self.target(d)
        if value.dtype.is_float and d.recurrence is None:
            absent = {what: presence(value, self.present, what) for what in (0.0, inf, -inf)}
            self.present |= {(d.name, w): Presence(tuple(scope), c) for w, c in absent.items() if c is not None}
        value = _as_compute(value, target.dtype)
        index = tuple(Var(v) for v in scope)
        store = Store(d.name, index, value, None, d.span)
        self.kernels.append(Kernel(d.name, (), _nest(d.axes, Kind.PAR, (store,)), d.span))

    def target(self, d: Definition) -> Buffer:
        if d.is_output:
            return next(b for b in self.buffers if b.name == d.name)
        made = next((b for b in self.buffers if b.name == d.name), None)
        return made or self.buffer(Buffer(d.name, d.stored, d.shape, Space.TEMP, d.span))

    def recurrence(self, members: Sequence[Definition]) -> None:
        """The kernel of a recurrence, after those of the reductions in it that read none of its members."""
        for d in members:
            self.target(d)
        start, owner = len(self.kernels), dict[str, Definition]()
        for d in members:
            before = len(self.kernels)
            self.definition(d)
            owner |= {k.name: d for k in self.kernels[before:]}
        inside = {d.name for d in members}
        plain, own = list[Kernel](), list[Kernel]()
        for k in self.kernels[start:]:
            (plain if k.name not in inside and reads_of(k).isdisjoint(inside) else own).append(k)
            inside |= {own[-1].name} if own else set()
        reads = [(d.name, e) for d in members for e in walk(d.expr) if isinstance(e, Load)]
        reads = [(reader, e) for reader, e in reads if any(e.buffer == d.name for d in members)]
        free = independent({d.name: d.axes for d in members}, reads)
        first = members[0]
        assert first.recurrence is not None
        shared = [first.axes[places[first.name]] for places in free]
        step = first.axes[first.recurrence.axis]
        nests = []
        for k in own:
            d = owner[k.name]
            assert d.recurrence is not None
            names = {d.axes[places[d.name]].name: a.name for a, places in zip(shared, free, strict=True)}
            names[d.axes[d.recurrence.axis].name] = step.name
            nests.append((read_def(Program(self.spec.name, tuple(self.buffers), (), ()), k), names))
        made = recurrence_kernel(members[-1].name, nests, shared, step, first.recurrence.reverse)
        steps = {k.name for k in own}  # what only a step needs stays in it
        self.shared = {key: found for key, found in self.shared.items() if found[0].name not in steps}
        self.kernels[start:] = [*plain, made]

    # -- reductions -------------------------------------------------------------------------------
    def hoist(self, e: Expr, scope: Scope, path: tuple[Expr, ...], owner: str) -> Expr:
        """``e`` with every Reduce in it replaced by a load of its temp; ``path``: what holds here."""
        match e:
            case Reduce():
                return self.temp(self.hoist_inside(e, scope, path, owner), scope, path, f"{owner}_{e.op}")
            case Op(op="select", args=(c, a, b)):
                cond = self.hoist(c, scope, path, owner)
                yes = self.hoist(a, scope, (*path, cond), owner)
                no = self.hoist(b, scope, (*path, negation(cond)), owner)
                return with_children(e, (cond, yes, no))
        return with_children(e, tuple(self.hoist(c, scope, path, owner) for c in children(e)))

    def hoist_inside(self, e: Reduce, scope: Scope, path: tuple[Expr, ...], owner: str) -> Reduce:
        """``e`` with the reductions in its condition and body hoisted, its selects made conditions."""
        inner = {**scope, **{a.name: a.extent for a in e.axes}}
        cond = None if e.cond is None else self.hoist(e.cond, inner, path, owner)
        body = self.hoist(e.body, inner, path if cond is None else (*path, cond), owner)
        if e.dtype.is_float:
            body, guard = guarded_terms(e.op, body, self.present)
            cond = conjunction((cond, guard))
        else:
            body, cond = absorb_selects(e.op, body, cond)
        return replace(e, cond=cond, body=body)

    def temp(self, e: Reduce, scope: Scope, path: tuple[Expr, ...], name: str) -> Load:
        """A load of the temp that holds ``e`` (no Reduce inside), made if there is none yet."""
        if self.key(e, scope) not in self.shared:  # else it is evaluated anyway, as by the condition of a choice
            e = self.guarded(e, scope, path)
        key = self.key(e, scope)
        order = self.occurrence(e, scope)
        if key not in self.shared:
            free = tuple(v for v in scope if v in order)
            shape = tuple(scope[v] for v in free)
            made = self.buffer(Buffer(self.fresh(name), e.dtype, shape, Space.TEMP, e.span))
            self.reduction(e, made, free, scope)
        found, numbers = self.shared[key]
        return Load(found.name, tuple(Var(order[n]) for n in numbers), found.dtype, e.span)

    def guarded(self, e: Reduce, scope: Scope, path: tuple[Expr, ...]) -> Reduce:
        """``e`` with conditions from around it, where without them it could read outside a tensor."""
        inner = {**scope, **{a.name: a.extent for a in e.axes}}
        own = () if e.cond is None else (e.cond,)
        if certainly_in_range(e.body, self.shapes, inner, own) and all(
            certainly_in_range(c, self.shapes, inner) for c in own
        ):
            return e
        names = free_vars(e) | {a.name for a in e.axes}
        around = [c for part in path for c in conjuncts(part)]
        near = [c for c in around if free_vars(c) <= names]
        far = [c for c in around if not free_vars(c) <= names]
        # A condition over further variables gives the temp their dimensions, so it is added only where it is the proof.
        if far and certainly_in_range(e.body, self.shapes, inner, (*near, *far, *own)):
            for c in list(far):
                rest = [f for f in far if f is not c]
                if certainly_in_range(e.body, self.shapes, inner, (*near, *rest, *own)):
                    far = rest
            near += far
        return replace(e, cond=conjunction((*near, *own)))

    def occurrence(self, e: Reduce, scope: Scope) -> list[str]:
        """The free variables of ``e`` in order of first occurrence."""
        free = free_vars(e)
        seen: dict[str, None] = {}
        stack = [e.body] if e.cond is None else [e.cond, e.body]
        while stack:
            n = stack.pop()
            if isinstance(n, Var) and n.name in free and n.name in scope:
                seen.setdefault(n.name)
            stack.extend(reversed(children(n)))
        return list(seen)

    def key(self, e: Reduce, scope: Scope) -> _Key:
        free = self.occurrence(e, scope)
        env: dict[str, Expr] = {v: Var(f"#{k}") for k, v in enumerate(free)}
        env |= {a.name: Var(f"#r{k}") for k, a in enumerate(e.axes)}
        guard = None if e.cond is None else substitute(e.cond, env)
        extents = (*(scope[v] for v in free), *(a.extent for a in e.axes))
        return _Key(e.op, extents, substitute(e.body, env), guard)

    def reduction(self, e: Reduce, target: Buffer, order: tuple[str, ...], scope: Scope) -> None:
        """The kernel that reduces ``e`` into ``target`` over the variables ``order``."""
        index = tuple(Var(v) for v in order)
        init = Store(target.name, index, identity(e.op, target.dtype), None, e.span)
        update = Update(target.name, e.op, index, e.body, e.cond, e.span)
        body = (init, *_nest(e.axes, Kind.RED, (update,)))
        axes = tuple(Axis(v, scope[v], e.span) for v in order)
        self.kernels.append(Kernel(target.name, (), _nest(axes, Kind.PAR, body), e.span))
        seen = self.occurrence(e, scope)
        self.shared[self.key(e, scope)] = (target, tuple(seen.index(v) for v in order))


def _without_rounding(d: Definition) -> Expr:
    """The definition's expression without the final conversion, which its store does."""
    e = d.expr
    if isinstance(e, Op) and e.op == "cast" and d.dtype is e.dtype and e.args[0].dtype is e.dtype.compute:
        return e.args[0]
    return e


def _as_compute(e: Expr, storage: DType) -> Expr:
    """``e`` in the compute type of what it is stored to."""
    return e if e.dtype is storage.compute else Op("cast", (e,), storage.compute, e.span)


def _nest(axes: tuple[Axis, ...], kind: Kind, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for a in reversed(axes):
        hi = integer(a.extent) if isinstance(a.extent, int) else a.extent
        body = (Loop(a.name, integer(0), hi, kind, body, _span(a, body)),)
    return body


def _span(a: Axis, body: tuple[Stmt, ...]) -> Span:
    return a.span if a.span.line > 0 else body[-1].span


# -- names of index variables --------------------------------------------------------------------


def _apart_from_arguments(spec: Spec, arguments: Collection[str]) -> Spec:
    """``spec`` with other names for index variables that have, or whose tiles would have, the name of an argument."""
    used = {a.name for d in spec.definitions for a in _bound_axes(d)}
    names: dict[str, str] = {}
    taken = used | {d.name for d in spec.definitions} | set(spec.tensors) | set(arguments)
    for name in sorted(used):
        new = name
        while any(re.fullmatch(rf"{new}(0b*)?", argument) for argument in arguments):
            new = unused(f"{new}_", taken)
        if new != name:
            names[name] = new
            taken.add(new)
    if not names:
        return spec
    return replace(spec, definitions=tuple(_renamed(d, names) for d in spec.definitions))


def _bound_axes(d: Definition) -> list[Axis]:
    reduced = [a for n in walk(d.expr) if isinstance(n, Reduce) for a in n.axes]
    return [*d.axes, *reduced]


def _renamed(d: Definition, names: Mapping[str, str]) -> Definition:
    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(a, name=names.get(a.name, a.name)) for a in old)

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Var) and n.name in names:
            return replace(n, name=names[n.name])
        return replace(n, axes=axes(n.axes)) if isinstance(n, Reduce) else None

    return replace(d, axes=axes(d.axes), expr=rewrite(d.expr, rule))
