"""``rolling-update``: merges the reduction loops of one phase into one loop with repair terms.

An accumulator that needs the complete result ``r`` of another reduction in the same loop is updated block by block::

    r_new = r ; r_new op= ...                      -- this block's contribution
    r_ref = select(r_new == identity, c, r_new)    -- a finite reference, where one is needed
    r_fix = t's factor from r to r_ref             -- once for all accumulators that share it
    A = A * r_fix ; A op= f(x, r_ref)              -- or A + r_fix, or the identity where A starts again
    r = r_new

``repair`` derives and proves ``t``.  Initialisations move before the loop.  A local over the whole reduced axis is then
written and read within one iteration and shrinks to a tile.

The pass raises ScheduleError for a dependent reduction without a proved repair term, and for a store to memory or a
reduction inside the block that needs a running result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import FALSE, conjunction, conjuncts
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, identity, loads, rewrite, substitute
from nautilus.core.index.linear import divided
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.derived_names import (
    LOOP,
    block_var,
    has_tile,
    is_tiled,
    phase_of,
    plan_of,
)
from nautilus.scalar.analysis.repair.certificate import certify
from nautilus.scalar.analysis.repair.records import Refusal, Repair, Running
from nautilus.scalar.analysis.repair.terms import derive, reference_of
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, computed, statements
from nautilus.scalar.rewriting import grid_chain, nest


@dataclass(frozen=True, slots=True)
class RollingUpdate(CertifyingPass[Program]):
    """Merge the reduction loops that the schedule puts into one phase."""

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
    """``kernel`` with one loop for each phase; ``used`` gets its repairs. Raises ScheduleError."""
    chain, body = grid_chain(kernel)
    locals_ = {b.name: b for b in kernel.locals}
    phase = phase_of(plan, frozenset(locals_))
    loop_axes = {block_var(plan, a.name): a.name for a in plan.axes if a.role == LOOP}
    groups: dict[int, list[Stmt]] = {}
    for s in body:
        target = next(statements((s,)))[1].buffer
        groups.setdefault(phase[target], []).append(s)
    out: list[Stmt] = []
    for p in sorted(groups):
        out.extend(_phase(groups[p], _LoopState(plan, locals_, loop_axes, _tile_sizes(body), used)))
    return _contract(replace(kernel, locals=tuple(locals_.values()), body=nest(chain, tuple(out))), plan)


def _tile_sizes(body: tuple[Stmt, ...]) -> dict[str, Expr]:
    return {loop.var: loop.hi for loops, _ in statements(body) for loop in loops if loop.kind.is_tile}


@dataclass(slots=True)
class _LoopState:
    """The state of merging the loops of one phase."""

    plan: KernelPlan
    locals: dict[str, Buffer]
    loop_axes: dict[str, str]  # block variable -> axis
    sizes: dict[str, Expr]  # tile variable -> size
    used: list[tuple[str, Repair]]
    axis_vars: frozenset[str] = frozenset()
    carried: dict[str, Update] = field(default_factory=dict)
    tainted: dict[str, Store] = field(default_factory=dict)
    repairs: dict[str, tuple[tuple[str, ...], tuple[Load, ...], Repair]] = field(default_factory=dict)
    repair_factors: dict[Expr, str] = field(default_factory=dict)

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


def _phase(group: list[Stmt], state: _LoopState) -> tuple[Stmt, ...]:
    seqs = [s for s in group if isinstance(s, Loop) and s.kind is Kind.SEQ]
    if not seqs or len({s.var for s in seqs}) != 1 or seqs[0].var not in state.loop_axes:
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
            raise state.error(f"{_target(s).buffer} cannot share a reduction loop: it completes between the loops")
    var = seqs[0].var
    state.axis_vars = frozenset({var, state.loop_axes[var]})
    _analyse(tuple(body), state)
    loop = replace(seqs[0], body=_emit(body, state))
    return (*head, loop, *_finalise(state), *tail)


def _target(s: Stmt) -> Store | Update:
    return next(statements((s,)))[1]


def _is_init(s: Stmt) -> bool:
    t = _target(s)
    return isinstance(t, Store) and isinstance(t.value, Const)


def _analyse(body: tuple[Stmt, ...], state: _LoopState) -> None:
    """Find carried accumulators, what depends on running ones, and their repairs."""
    leaves = [s for _, s in statements(body)]
    fresh = {s.buffer for s in leaves if isinstance(s, Store)}
    for s in leaves:
        if isinstance(s, Update) and s.buffer not in fresh:
            state.carried[s.buffer] = s
    for s in leaves:
        needs = [ld for e in computed(s) for ld in loads(_expand(e, state)) if ld.buffer in state.carried]
        needs = [ld for ld in dict.fromkeys(needs) if ld.buffer != s.buffer]
        if not needs:
            continue
        names = ", ".join(dict.fromkeys(ld.buffer for ld in needs))
        if s.buffer in state.carried and isinstance(s, Update):
            state.repairs[s.buffer] = _repair(s, tuple(needs), state)
        elif isinstance(s, Store) and s.buffer in state.locals and not _asks(s.guard, state):
            state.tainted[s.buffer] = s
        else:
            raise state.error(f"{s.buffer} needs the complete {names} in the same reduction loop")


def _expand(e: Expr, state: _LoopState) -> Expr:
    """``e`` with the definitions of block-local values that depend on a running result."""

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer in state.tainted:
            s = state.tainted[n.buffer]
            if s.index != n.index:
                raise state.error(f"{n.buffer} is read across iterations of the reduction loop")
            value = s.value
            return value if n.dtype is value.dtype else Op("narrow", (value,), n.dtype)
        return None

    return rewrite(e, rule)


def _asks(guard: Expr | None, state: _LoopState) -> bool:
    """Whether a condition depends on a running result."""
    return guard is not None and any(ld.buffer in state.carried for ld in loads(_expand(guard, state)))


def _repair(s: Update, needs: tuple[Load, ...], state: _LoopState) -> tuple[tuple[str, ...], tuple[Load, ...], Repair]:
    for b in _feeding(state, s):
        # Its definition stands in for it, so it must be defined wherever it is read.
        if not set(conjuncts(state.tainted[b].guard)) <= set(conjuncts(s.guard)):
            raise state.error(f"{s.buffer} reads {b} where it may not be defined")
    running = []
    for ld in needs:
        r = state.carried[ld.buffer]
        running.append(Running(ld, r.op, r.value, conjuncts(r.guard)))
    guard = tuple(_expand(c, state) for c in conjuncts(s.guard))
    got = derive(_expand(s.value, state), guard, s.op, running, state.axis_vars)
    if isinstance(got, Refusal):
        raise state.error(f"no repair term for {s.buffer}: {got.reason}")
    state.used.append((s.buffer, got))
    return tuple(ld.buffer for ld in needs), needs, got


def _reading(state: _LoopState, buffer: str) -> dict[str, bool]:
    """For a reader: running buffer -> whether it reads the finite reference (else the new value)."""
    if buffer in state.repairs:
        names, _, repair = state.repairs[buffer]
        return {n: ref is not None for n, ref in zip(names, repair.references, strict=True)}
    found: dict[str, bool] = {}
    for name, (deps, _, repair) in state.repairs.items():
        if buffer in _feeding(state, state.carried[name]):
            for n, ref in zip(deps, repair.references, strict=True):
                if found.setdefault(n, ref is not None) != (ref is not None):
                    raise state.error(f"readers of {buffer} need different references")
    return found


def _feeding(state: _LoopState, s: Store | Update) -> frozenset[str]:
    """The block-local values with a running dependence that ``s`` reads, directly or not."""
    direct = {ld.buffer for ld in loads(s.value)} & state.tainted.keys()
    return frozenset(direct).union(*(_feeding(state, state.tainted[b]) for b in direct))


def _emit(body: list[Stmt], state: _LoopState) -> tuple[Stmt, ...]:
    renewed = dict.fromkeys(n for names, _, _ in state.repairs.values() for n in names)
    for s in state.tainted.values():
        renewed |= dict.fromkeys(ld.buffer for ld in loads(s.value) if ld.buffer in state.carried)
    new = {r: state.local(f"{r}_new", state.locals[r].dtype, _dims(state.carried[r])) for r in renewed}
    refs: dict[str, tuple[str, float]] = {}
    for names, _, repair in state.repairs.values():
        for n, value in zip(names, repair.references, strict=True):
            if value is not None and n not in refs:
                refs[n] = (state.local(f"{n}_ref", state.locals[n].dtype, _dims(state.carried[n])), value)
    out: list[Stmt] = []
    for stmt in body:
        target = _written(stmt, state)
        if target in renewed:
            u = state.carried[target]
            out.append(state.store(new[target], _dims(u), Load(target, u.index, state.locals[target].dtype)))
        if target in state.repairs:
            out.extend(_emit_repair(target, new.get(target, target), state, new, refs))
        out.append(_retarget(stmt, state, new, refs))
        if target in refs:
            ref, value = refs[target]
            u = state.carried[target]
            now = Load(new[target], u.index, state.locals[target].dtype)
            out.append(state.store(ref, _dims(u), reference_of(now, u.op, value)))
    for r in renewed:
        u = state.carried[r]
        out.append(state.store(r, _dims(u), Load(new[r], u.index, state.locals[r].dtype)))
    return tuple(out)


def _dims(u: Update) -> tuple[str, ...]:
    return tuple(v.name for v in u.index if isinstance(v, Var))


def _written(s: Stmt, state: _LoopState) -> str:
    """The carried accumulator that ``s`` updates, or another buffer that it writes."""
    targets = [t.buffer for _, t in statements((s,))]
    return next((t for t in targets if t in state.carried), targets[0])


def _retarget(s: Stmt, state: _LoopState, new: dict[str, str], refs: dict[str, tuple[str, float]]) -> Stmt:
    if isinstance(s, Loop):
        return replace(s, body=tuple(_retarget(b, state, new, refs) for b in s.body))
    reads = _reading(state, s.buffer)
    finite = {name for name, _ in refs.values()}

    def rule(n: Expr) -> Expr | None:
        match n:
            case Load(buffer=name) if name in reads:
                return replace(n, buffer=refs[name][0] if reads[name] else new[name])
            case Op(op="select", args=(Op(op="eq", args=(Load() as a, Const())), Const(), b)) if a == b:
                return b if a.buffer in finite else None  # a reference never is the identity
        return None

    guard = None if s.guard is None else rewrite(s.guard, rule)
    return replace(s, buffer=new.get(s.buffer, s.buffer), value=rewrite(s.value, rule), guard=guard)


def _emit_repair(
    name: str, into: str, state: _LoopState, new: dict[str, str], refs: dict[str, tuple[str, float]]
) -> Iterator[Stmt]:
    """``A = A * factor``, and the factor if no other accumulator computed it before."""
    names, reads, repair = state.repairs[name]
    if repair.mode == "none":
        return
    env: dict[str, Expr] = dict(repair.symbols)
    for k, (n, ld) in enumerate(zip(names, reads, strict=True)):
        value = repair.references[k]
        env[f"new{k}"] = replace(ld, buffer=new[n] if value is None else refs[n][0])
        raw = repair.raw_old[k] or value is None
        env[f"old{k}"] = ld if raw or value is None else reference_of(ld, state.carried[n].op, value)
    if repair.factor is None:
        here = env["a"] = _here(name, into, state)
        yield state.store(into, _dims(state.carried[name]), _inside(substitute(repair.t, env), here, name, state))
        return
    neutral = Const(1.0 if repair.mode == "scale" else 0.0, repair.factor.dtype)
    factor = _inside(substitute(repair.factor, env), neutral, name, state)
    if factor not in state.repair_factors:
        axes = state.tiles(factor)
        single = len(names) == 1
        state.repair_factors[factor] = state.local(f"{names[0] if single else name}_fix", factor.dtype, axes)
        yield state.store(state.repair_factors[factor], axes, factor)
    repair_factor = Load(state.repair_factors[factor], tuple(Var(a) for a in state.tiles(factor)), factor.dtype)
    yield _apply(name, into, repair_factor, repair, state)


def _inside(value: Expr, otherwise: Expr, name: str, state: _LoopState) -> Expr:
    """``value`` where accumulator ``name`` has terms, ``otherwise`` elsewhere, if ``value`` reads an input.

    The terms read the input under their guard, which leaves out rows beyond the end of a tensor.  Only conditions
    that hold for all terms of an element or for none count: the element of a step without terms is repaired too.
    """
    if all(ld.buffer in state.locals for ld in loads(value)):
        return value
    moving = (state.sizes.keys() - set(state.tiles(value))) | state.loop_axes.keys()
    parts = [c for c in _parts(state.carried[name].guard) if not loads(c) and not free_vars(c) & moving]
    inside = conjunction(parts)
    return value if inside is None else calc("select", inside, value, otherwise)


def _parts(guard: Expr | None) -> Iterator[Expr]:
    """The conditions of a conjunction, those that others bound among them."""
    for c in conjuncts(guard):
        if isinstance(c, Op) and c.op == "select" and c.args[2] == FALSE:
            yield from (*_parts(c.args[0]), *_parts(c.args[1]))
        else:
            yield c


def _apply(name: str, into: str, factor: Expr, repair: Repair, state: _LoopState) -> Stmt:
    here = _here(name, into, state)
    op = "mul" if repair.mode == "scale" else "add"
    return state.store(into, _dims(state.carried[name]), Op(op, (here, _of_type(factor, here.dtype)), here.dtype))


def _of_type(factor: Expr, dtype: DType) -> Expr:
    """``factor`` in the type of the accumulator that it repairs, which may be wider than the references."""
    if factor.dtype is dtype:
        return factor
    return Op("cast" if factor.dtype.bytes < dtype.bytes else "narrow", (factor,), dtype)


def _here(name: str, buffer: str, state: _LoopState) -> Load:
    """The accumulated value of ``name``, as held by ``buffer``."""
    return Load(buffer, state.carried[name].index, state.locals[name].dtype)


def _finalise(state: _LoopState) -> Iterator[Stmt]:
    """Repair the accumulators after the loop from the last references to the final values (``repair``, References)."""
    for name, (names, reads, repair) in state.repairs.items():
        if not repair.finalise or repair.factor is None:
            continue
        env: dict[str, Expr] = dict(repair.symbols)
        for k, (n, ld) in enumerate(zip(names, reads, strict=True)):
            value = repair.references[k]
            ref = ld if value is None else reference_of(ld, state.carried[n].op, value)
            env[f"old{k}"] = ref
            env[f"new{k}"] = ref if repair.raw_old[k] or repair.finite[k] else ld
        u, here = state.carried[name], _here(name, name, state)
        factor = substitute(repair.factor, env)
        untouched = calc("eq", here, identity(u.op, here.dtype))
        moved = Op("mul" if repair.mode == "scale" else "add", (here, _of_type(factor, here.dtype)), here.dtype)
        repaired = Op("select", (untouched, here, moved), here.dtype)
        yield state.store(name, _dims(u), _inside(repaired, here, name, state))


def _contract(kernel: Kernel, plan: KernelPlan) -> Kernel:
    """Shrink locals over the axis of a reduction loop to one tile."""
    loop_axes = {}
    for a in plan.axes:
        if a.role == LOOP:
            block = Var(block_var(plan, a.name))
            inner = calc("add", calc("mul", block, a.tile), Var(a.name))
            loop_axes[divided(inner if is_tiled(a) else block)] = a
    names = {b.name for b in kernel.locals}
    keep: dict[str, list[int | str]] = {}
    for _, s in statements(kernel.body):
        found = [(s.buffer, s.index)] if s.buffer in names else []
        found += [(ld.buffer, ld.index) for e in computed(s) for ld in loads(e) if ld.buffer in names]
        for buffer, index in found:
            axes = [loop_axes.get(divided(e)) for e in index]
            dims = [i if a is None else a.name for i, a in enumerate(axes)]
            if keep.setdefault(buffer, list(dims)) != dims:
                raise ScheduleError(f"{buffer} is read at another position of the reduced axis", kernel=plan.name)
    for name in keep:
        _one_loop(kernel, plan, name, [d for d in keep[name] if isinstance(d, str)])

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


def _one_loop(kernel: Kernel, plan: KernelPlan, name: str, axes: list[str]) -> None:
    """Check that a local over the axis of a reduction loop is accessed in one iteration of one loop only."""
    blocks = {block_var(plan, a) for a in axes}
    enclosing = set()
    for loops, s in statements(kernel.body):
        touched = s.buffer == name or any(ld.buffer == name for e in computed(s) for ld in loads(e))
        if touched and blocks:
            enclosing.add(tuple(id(loop) for loop in loops if loop.var in blocks))
    if len(enclosing) > 1 or any(len(h) != len(blocks) for h in enclosing):
        raise ScheduleError(f"{name} spans all of {', '.join(axes)}: it needs a temp", kernel=plan.name)
