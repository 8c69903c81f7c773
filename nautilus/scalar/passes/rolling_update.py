"""``rolling_update``: the walks of one phase become one loop, dependent reductions repaired as they go.

An accumulator that needs the complete result ``r`` of another one in the same loop gets, a block at
a time::

    r_new = r ; r_new op= ...                      -- this block's contribution
    r_ref = select(r_new == identity, c, r_new)    -- a finite reference, where one is needed
    r_fix = t's factor from r to r_ref             -- once for all accumulators that share it
    A = A * r_fix ; A op= f(x, r_ref)              -- or A + r_fix
    r = r_new

(``repair`` derives and proves ``t``.)  Inits move before the loop.  A local that held the whole
walked axis is then written and read within one iteration and shrinks to a tile.

Refused with ScheduleError: a dependent reduction without a proved repair; a store to memory, or a
reduction inside the block, that needs a result that is still running.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, identity, loads, rewrite
from nautilus.core.index.linear import divided
from nautilus.core.passes import CertifyingPass
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.derived_names import (
    LOOP,
    block_var,
    grid_chain,
    has_tile,
    is_tiled,
    nest,
    phase_of,
    plan_of,
)
from nautilus.scalar.analysis.repair import Refusal, Repair, Running, derive, stand_in
from nautilus.scalar.analysis.repair_certificate import certify
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, statements


@dataclass(frozen=True, slots=True)
class RollingUpdate(CertifyingPass[Program]):
    """Merge the walks that the schedule puts into one phase."""

    schedule: Schedule

    name = "rolling-update"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program in tiled form, and two certificates for each repair that it uses.

        Raises ScheduleError where a phase is not legal.
        """
        used: list[tuple[str, Repair]] = []
        kernels = tuple(roll_kernel(k, plan_of(self.schedule, k.name), used) for k in program.kernels)
        certificates = tuple(c for name, repair in used for c in certify(name, repair))
        return replace(program, kernels=kernels), certificates


def roll_kernel(kernel: Kernel, plan: KernelPlan, used: list[tuple[str, Repair]]) -> Kernel:
    chain, body = grid_chain(kernel)
    locals_ = {b.name: b for b in kernel.locals}
    phase = phase_of(plan, frozenset(locals_))
    walked = {block_var(plan, a.name): a.name for a in plan.axes if a.role == LOOP}
    groups: dict[int, list[Stmt]] = {}
    for s in body:
        target = next(statements((s,)))[1].buffer
        groups.setdefault(phase[target], []).append(s)
    out: list[Stmt] = []
    for p in sorted(groups):
        out.extend(_phase(groups[p], _Walk(plan, locals_, walked, _tile_sizes(body), used)))
    return _contract(replace(kernel, locals=tuple(locals_.values()), body=nest(chain, tuple(out))), plan)


def _tile_sizes(body: tuple[Stmt, ...]) -> dict[str, Expr]:
    return {loop.var: loop.hi for loops, _ in statements(body) for loop in loops if loop.kind.is_tile}


@dataclass(slots=True)
class _Walk:
    """One phase on its way into one loop."""

    plan: KernelPlan
    locals: dict[str, Buffer]
    walked: dict[str, str]  # block variable -> axis
    sizes: dict[str, Expr]  # tile variable -> size
    used: list[tuple[str, Repair]]
    axis_vars: frozenset[str] = frozenset()
    carried: dict[str, Update] = field(default_factory=dict)
    tainted: dict[str, Store] = field(default_factory=dict)
    repairs: dict[str, tuple[tuple[str, ...], tuple[Load, ...], Repair]] = field(default_factory=dict)
    fixes: dict[Expr, str] = field(default_factory=dict)

    def local(self, name: str, dtype: DType, axes: tuple[str, ...]) -> str:
        """A new local over tile ``axes``; a number is added where the name is taken."""
        unique, k = name, 2
        while unique in self.locals:
            unique, k = f"{name}{k}", k + 1
        shape = tuple(int(s.value) for a in axes if isinstance(s := self.sizes[a], Const))
        self.locals[unique] = Buffer(unique, dtype, shape, Space.LOCAL)
        return unique

    def error(self, message: str) -> ScheduleError:
        return ScheduleError(message, kernel=self.plan.name)

    def tiles(self, e: Expr) -> tuple[str, ...]:
        """The tile variables that ``e`` varies with, in plan order."""
        free = free_vars(e)
        return tuple(a for a in self.sizes if a in free)

    def store(self, buffer: str, axes: tuple[str, ...], value: Expr) -> Stmt:
        s: Stmt = Store(buffer, tuple(Var(a) for a in axes), value)
        for a in reversed(axes):
            s = Loop(a, integer(0), self.sizes[a], Kind.TILE, (s,))
        return s


def _phase(group: list[Stmt], walk: _Walk) -> tuple[Stmt, ...]:
    seqs = [s for s in group if isinstance(s, Loop) and s.kind is Kind.SEQ]
    if not seqs or len({s.var for s in seqs}) != 1 or seqs[0].var not in walk.walked:
        return tuple(group)
    first, last = group.index(seqs[0]), max(i for i, s in enumerate(group) if s is seqs[-1])
    head, tail = group[:first], group[last + 1 :]
    body: list[Stmt] = []
    for s in group[first : last + 1]:
        if isinstance(s, Loop) and s.kind is Kind.SEQ:
            body.extend(s.body)
        elif _is_init(s):
            head.append(s)
        else:
            raise walk.error(f"{_target(s).buffer} cannot share a walk: it ends in between")
    var = seqs[0].var
    walk.axis_vars = frozenset({var, walk.walked[var]})
    _analyse(tuple(body), walk)
    loop = replace(seqs[0], body=_emit(body, walk))
    return (*head, loop, *_settle(walk), *tail)


def _target(s: Stmt) -> Store | Update:
    return next(statements((s,)))[1]


def _is_init(s: Stmt) -> bool:
    t = _target(s)
    return isinstance(t, Store) and isinstance(t.value, Const)


def _exprs(s: Store | Update) -> Iterator[Expr]:
    yield s.value
    if s.guard is not None:
        yield s.guard


def _analyse(body: tuple[Stmt, ...], walk: _Walk) -> None:
    """Find carried accumulators, what depends on running ones, and their repairs."""
    leaves = [s for _, s in statements(body)]
    fresh = {s.buffer for s in leaves if isinstance(s, Store)}
    for s in leaves:
        if isinstance(s, Update) and s.buffer not in fresh:
            walk.carried[s.buffer] = s
    for s in leaves:
        needs = [ld for e in _exprs(s) for ld in loads(_expand(e, walk)) if ld.buffer in walk.carried]
        needs = [ld for ld in dict.fromkeys(needs) if ld.buffer != s.buffer]
        if not needs:
            continue
        names = ", ".join(dict.fromkeys(ld.buffer for ld in needs))
        if s.buffer in walk.carried and isinstance(s, Update):
            walk.repairs[s.buffer] = _repair(s, tuple(needs), walk)
        elif isinstance(s, Store) and s.buffer in walk.locals and not _asks(s.guard, walk):
            walk.tainted[s.buffer] = s
        else:
            raise walk.error(f"{s.buffer} needs the complete {names} in the same walk")


def _expand(e: Expr, walk: _Walk) -> Expr:
    """``e`` with the definitions of block-local values that depend on a running result."""

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer in walk.tainted:
            s = walk.tainted[n.buffer]
            if s.index != n.index:
                raise walk.error(f"{n.buffer} is read across the walk")
            value = s.value
            return value if n.dtype is value.dtype else Op("narrow", (value,), n.dtype)
        return None

    return rewrite(e, rule)


def _asks(guard: Expr | None, walk: _Walk) -> bool:
    """Whether a condition depends on a running result."""
    return guard is not None and any(ld.buffer in walk.carried for ld in loads(_expand(guard, walk)))


def _repair(s: Update, needs: tuple[Load, ...], walk: _Walk) -> tuple[tuple[str, ...], tuple[Load, ...], Repair]:
    if _asks(s.guard, walk):
        raise walk.error(f"the condition of {s.buffer} needs a running result")
    for b in _feeding(walk, s):
        # Its definition stands in for it, so it must be defined wherever it is read.
        if not set(conjuncts(walk.tainted[b].guard)) <= set(conjuncts(s.guard)):
            raise walk.error(f"{s.buffer} reads {b} where it may not be defined")
    running = []
    for ld in needs:
        r = walk.carried[ld.buffer]
        running.append(Running(ld, r.op, r.value, conjuncts(r.guard)))
    got = derive(_expand(s.value, walk), conjuncts(s.guard), s.op, running, walk.axis_vars)
    if isinstance(got, Refusal):
        raise walk.error(f"no repair for {s.buffer}: {got.reason}")
    walk.used.append((s.buffer, got))
    return tuple(ld.buffer for ld in needs), needs, got


def _reading(walk: _Walk, buffer: str) -> dict[str, bool]:
    """For a reader: running buffer -> whether it reads the finite reference (else the new value)."""
    if buffer in walk.repairs:
        names, _, repair = walk.repairs[buffer]
        return {n: ref is not None for n, ref in zip(names, repair.references, strict=True)}
    found: dict[str, bool] = {}
    for name, (deps, _, repair) in walk.repairs.items():
        if buffer in _feeding(walk, walk.carried[name]):
            for n, ref in zip(deps, repair.references, strict=True):
                if found.setdefault(n, ref is not None) != (ref is not None):
                    raise walk.error(f"readers of {buffer} need different references")
    return found


def _feeding(walk: _Walk, s: Store | Update) -> frozenset[str]:
    """The block-local values with a running dependence that ``s`` reads, directly or not."""
    direct = {ld.buffer for ld in loads(s.value)} & walk.tainted.keys()
    return frozenset(direct).union(*(_feeding(walk, walk.tainted[b]) for b in direct))


def _emit(body: list[Stmt], walk: _Walk) -> tuple[Stmt, ...]:
    renewed = dict.fromkeys(n for names, _, _ in walk.repairs.values() for n in names)
    for s in walk.tainted.values():
        renewed |= dict.fromkeys(ld.buffer for ld in loads(s.value) if ld.buffer in walk.carried)
    new = {r: walk.local(f"{r}_new", walk.locals[r].dtype, _dims(walk.carried[r])) for r in renewed}
    refs: dict[str, tuple[str, float]] = {}
    for names, _, repair in walk.repairs.values():
        for n, value in zip(names, repair.references, strict=True):
            if value is not None and n not in refs:
                refs[n] = (walk.local(f"{n}_ref", walk.locals[n].dtype, _dims(walk.carried[n])), value)
    out: list[Stmt] = []
    for stmt in body:
        target = _written(stmt, walk)
        if target in renewed:
            u = walk.carried[target]
            out.append(walk.store(new[target], _dims(u), Load(target, u.index, walk.locals[target].dtype)))
        if target in walk.repairs:
            out.extend(_fix(target, new.get(target, target), walk, new, refs))
        out.append(_retarget(stmt, walk, new, refs))
        if target in refs:
            ref, value = refs[target]
            u = walk.carried[target]
            now = Load(new[target], u.index, walk.locals[target].dtype)
            out.append(walk.store(ref, _dims(u), stand_in(now, u.op, value)))
    for r in renewed:
        u = walk.carried[r]
        out.append(walk.store(r, _dims(u), Load(new[r], u.index, walk.locals[r].dtype)))
    return tuple(out)


def _dims(u: Update) -> tuple[str, ...]:
    return tuple(v.name for v in u.index if isinstance(v, Var))


def _written(s: Stmt, walk: _Walk) -> str:
    """The carried accumulator that ``s`` updates, or another buffer that it writes."""
    targets = [t.buffer for _, t in statements((s,))]
    return next((t for t in targets if t in walk.carried), targets[0])


def _retarget(s: Stmt, walk: _Walk, new: dict[str, str], refs: dict[str, tuple[str, float]]) -> Stmt:
    if isinstance(s, Loop):
        return replace(s, body=tuple(_retarget(b, walk, new, refs) for b in s.body))
    reads = _reading(walk, s.buffer)
    finite = {name for name, _ in refs.values()}

    def rule(n: Expr) -> Expr | None:
        match n:
            case Load(buffer=name) if name in reads:
                return replace(n, buffer=refs[name][0] if reads[name] else new[name])
            case Op(op="select", args=(Op(op="eq", args=(Load() as a, Const())), Const(), b)) if a == b:
                return b if a.buffer in finite else None  # a reference never is the identity
        return None

    return replace(s, buffer=new.get(s.buffer, s.buffer), value=rewrite(s.value, rule))


def _fix(name: str, into: str, walk: _Walk, new: dict[str, str], refs: dict[str, tuple[str, float]]) -> Iterator[Stmt]:
    """``A = A * factor``, and the factor if no other accumulator computed it before."""
    names, reads, repair = walk.repairs[name]
    if repair.factor is None:
        return
    env: dict[str, Expr] = dict(repair.symbols)
    for k, (n, ld) in enumerate(zip(names, reads, strict=True)):
        value = repair.references[k]
        env[f"new{k}"] = replace(ld, buffer=new[n] if value is None else refs[n][0])
        raw = repair.raw_old[k] or value is None
        env[f"old{k}"] = ld if raw or value is None else stand_in(ld, walk.carried[n].op, value)
    factor = rewrite(repair.factor, lambda e: env.get(e.name) if isinstance(e, Var) else None)
    if factor not in walk.fixes:
        axes = walk.tiles(factor)
        single = len(names) == 1
        walk.fixes[factor] = walk.local(f"{names[0] if single else name}_fix", factor.dtype, axes)
        yield walk.store(walk.fixes[factor], axes, factor)
    fix = Load(walk.fixes[factor], tuple(Var(a) for a in walk.tiles(factor)), factor.dtype)
    yield _apply(name, into, fix, repair, walk)


def _apply(name: str, into: str, factor: Expr, repair: Repair, walk: _Walk) -> Stmt:
    here = _here(name, into, walk)
    op = "mul" if repair.mode == "scale" else "add"
    return walk.store(into, _dims(walk.carried[name]), Op(op, (here, factor), here.dtype))


def _here(name: str, buffer: str, walk: _Walk) -> Load:
    """The accumulated value of ``name``, as held by ``buffer``."""
    return Load(buffer, walk.carried[name].index, walk.locals[name].dtype)


def _settle(walk: _Walk) -> Iterator[Stmt]:
    """After the loop: from the last references to the final values (``repair``, References)."""
    for name, (names, reads, repair) in walk.repairs.items():
        if not repair.settle or repair.factor is None:
            continue
        env: dict[str, Expr] = dict(repair.symbols)
        for k, (n, ld) in enumerate(zip(names, reads, strict=True)):
            value = repair.references[k]
            ref = ld if value is None else stand_in(ld, walk.carried[n].op, value)
            env[f"old{k}"] = ref
            env[f"new{k}"] = ref if repair.raw_old[k] or repair.finite[k] else ld
        factor = rewrite(repair.factor, lambda e, env=env: env.get(e.name) if isinstance(e, Var) else None)  # type: ignore[misc]
        u, here = walk.carried[name], _here(name, name, walk)
        untouched = calc("eq", here, identity(u.op, here.dtype))
        moved = Op("mul" if repair.mode == "scale" else "add", (here, factor), here.dtype)
        yield walk.store(name, _dims(u), Op("select", (untouched, here, moved), here.dtype))


def _contract(kernel: Kernel, plan: KernelPlan) -> Kernel:
    """Locals over a walked axis keep one tile of it."""
    walked = {}
    for a in plan.axes:
        if a.role == LOOP:
            block = Var(block_var(plan, a.name))
            inner = calc("add", calc("mul", block, a.tile), Var(a.name))
            walked[divided(inner if is_tiled(a) else block)] = a
    names = {b.name for b in kernel.locals}
    keep: dict[str, list[int | str]] = {}
    for _, s in statements(kernel.body):
        found = [(s.buffer, s.index)] if s.buffer in names else []
        found += [(ld.buffer, ld.index) for e in _exprs(s) for ld in loads(e) if ld.buffer in names]
        for buffer, index in found:
            axes = [walked.get(divided(e)) for e in index]
            dims = [i if a is None else a.name for i, a in enumerate(axes)]
            if keep.setdefault(buffer, list(dims)) != dims:
                raise ScheduleError(f"{buffer} is read elsewhere on the walked axis", kernel=plan.name)
    for name in keep:
        _one_walk(kernel, plan, name, [d for d in keep[name] if isinstance(d, str)])

    def kept_index(buffer: str, old: tuple[Expr, ...]) -> tuple[Expr, ...]:
        dims = zip(keep.get(buffer, list(range(len(old)))), old, strict=True)
        kept = [(Var(d) if isinstance(d, str) else e, d) for d, e in dims]
        return tuple(e for e, d in kept if isinstance(d, int) or has_tile(plan.axis(d)))

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer in names:
            return replace(n, index=kept_index(n.buffer, n.index))
        return None

    def shape(b: Buffer) -> Buffer:
        dims = zip(keep.get(b.name, list(range(len(b.shape)))), b.shape, strict=True)
        kept = [(plan.axis(d).tile if isinstance(d, str) else n, d) for d, n in dims]
        return replace(b, shape=tuple(n for n, d in kept if isinstance(d, int) or has_tile(plan.axis(d))))

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Loop):
            return replace(s, body=tuple(stmt(b) for b in s.body))
        guard = None if s.guard is None else rewrite(s.guard, rule)
        where = kept_index(s.buffer, s.index) if s.buffer in names else s.index
        return replace(s, index=where, value=rewrite(s.value, rule), guard=guard)

    body = tuple(stmt(s) for s in kernel.body)
    return replace(kernel, locals=tuple(shape(b) for b in kernel.locals), body=body)


def _one_walk(kernel: Kernel, plan: KernelPlan, name: str, axes: list[str]) -> None:
    """A local over a walked axis lives in one iteration of one loop."""
    blocks = {block_var(plan, a) for a in axes}
    homes = set()
    for loops, s in statements(kernel.body):
        touched = s.buffer == name or any(ld.buffer == name for e in _exprs(s) for ld in loads(e))
        if touched and blocks:
            homes.add(tuple(id(loop) for loop in loops if loop.var in blocks))
    if len(homes) > 1 or any(len(h) != len(blocks) for h in homes):
        raise ScheduleError(f"{name} spans all of {', '.join(axes)}: it needs a temp", kernel=plan.name)
