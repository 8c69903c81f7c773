"""What is legal in the Scalar IR: a table of rules, each rejecting what it does not know.

``verify(program)`` checks every rule of :data:`RULES` and raises VerifyError at the first offence.
``verify_tiled(kernel)`` checks the tiled form (``scalar.ir``), which only ``vr_tile.lowering.lower`` requires.

The promises of loop kinds are checked as far as indices are affine (:mod:`nautilus.scalar.analysis.independence`);
a write that cannot be proved independent is rejected, unless the buffer is a local that every
iteration has for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from nautilus.core.buffers import Buffer, Space
from nautilus.core.errors import VerifyError
from nautilus.core.expr.atomics import is_exact
from nautilus.core.expr.infer import DTypeError, reduce_dtype, result_dtype
from nautilus.core.expr.nodes import COMBINERS, Const, Expr, Load, Op, Param, Var, free_vars, identity, loads, walk
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import INDEX_TYPES, DType
from nautilus.scalar.analysis.independence import (
    has_whole_teams,
    neighbour,
    outside_of_step,
    private_loops,
    same_iteration,
    team_loop,
    undetermined,
)
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, expressions, statements
from nautilus.scalar.text import first_line

_LEVEL = "scalar"


@dataclass(frozen=True, slots=True)
class Offence:
    """A broken rule: the text of the node, and the reason."""

    node: str
    detail: str = ""
    span: Span = NO_SPAN


Rule = Callable[[Program], Iterator[Offence]]


def verify(program: Program) -> None:
    """Raise VerifyError for the first rule of the level that ``program`` breaks."""
    for name, rule in RULES.items():
        for offence in rule(program):
            raise VerifyError(_LEVEL, name, offence.node, offence.detail, offence.span)


def _at(s: Stmt) -> str:
    return first_line(s)


def _offence(s: Store | Update | Loop, detail: str) -> Offence:
    return Offence(_at(s), detail, s.span)


def _table(p: Program, k: Kernel) -> dict[str, Buffer]:
    return {b.name: b for b in (*p.buffers, *k.locals)}


@by_identity(128)  # each rule looks at them
def _statements(k: Kernel) -> tuple[tuple[tuple[Loop, ...], Store | Update], ...]:
    """The statements of ``k`` with the loops around them."""
    return tuple(statements(k.body))


@by_identity(128)
def _loops(k: Kernel) -> tuple[tuple[tuple[Loop, ...], Loop], ...]:
    """Every loop of ``k`` with the loops around it."""
    found: list[tuple[tuple[Loop, ...], Loop]] = []

    def below(body: Sequence[Stmt], outer: tuple[Loop, ...]) -> None:
        for s in body:
            if isinstance(s, Loop):
                found.append((outer, s))
                below(s.body, (*outer, s))

    below(k.body, ())
    return tuple(found)


# -- names and declarations -------------------------------------------------------------------


def _names(p: Program) -> Iterator[Offence]:
    seen: set[str] = set()
    for name in [b.name for b in p.buffers] + [s.name for s in p.params]:
        if name in seen:
            yield Offence(name, "declared twice")
        seen.add(name)
    kernels = [k.name for k in p.kernels]
    for name in kernels:
        if kernels.count(name) > 1:
            yield Offence(f"kernel {name}", "declared twice")
    for k in p.kernels:
        local = [b.name for b in k.locals]
        for name in local:
            if name in seen or local.count(name) > 1:
                yield Offence(f"local {name}", f"declared twice (kernel {k.name})")


def _declarations(p: Program) -> Iterator[Offence]:
    params = {s.name: s.dtype for s in p.params}
    for b in (*p.buffers, *(b for k in p.kernels for b in k.locals)):
        for e in b.shape:
            if not isinstance(e, int):
                atoms = [n for n in walk(e) if not isinstance(n, Op | Const)]
                if any(not _is_size(n, params) for n in atoms):
                    yield Offence(b.name, f"its extent {format_expr(e)} is not made of integer params", b.span)
            elif e <= 0:
                yield Offence(b.name, f"its extent {e} is not positive", b.span)
    for b in p.buffers:
        if b.space is Space.LOCAL:
            yield Offence(b.name, "a local stands in a kernel", b.span)
        yield from _support(b, {b.name for b in p.buffers if b.space in (Space.INPUT, Space.TEMP)})
    for k in p.kernels:
        for b in k.locals:
            if b.space is not Space.LOCAL:
                yield Offence(b.name, f"a kernel declares locals, not {b.space.value} buffers", b.span)


def _support(b: Buffer, tensors: Set[str]) -> Iterator[Offence]:
    """The rules of the support of a buffer: a condition on a place in a temp, and on elements of ``tensors``."""
    if b.support is None:
        return
    if b.space is not Space.TEMP:
        yield Offence(b.name, "only a temp has a support", b.span)
    if b.support.dtype is not DType.BOOL or any(ld.buffer not in tensors for ld in loads(b.support)):
        yield Offence(b.name, "its support is no condition on indices, inputs and temps", b.span)
    if not free_vars(b.support) <= {f"i{n}" for n in range(len(b.shape))}:
        yield Offence(b.name, f"its support {format_expr(b.support)} uses a variable that is no place in it", b.span)


def _is_size(e: Expr, params: Mapping[str, DType]) -> bool:
    return isinstance(e, Param) and params.get(e.name) is e.dtype and e.dtype in INDEX_TYPES


# -- loops ------------------------------------------------------------------------------------


def _bounds(p: Program) -> Iterator[Offence]:
    readable = {b.name for b in p.buffers if b.space is Space.INPUT}
    params = {s.name for s in p.params}
    for k in p.kernels:
        for outer, loop in _loops(k):
            names = {o.var for o in outer}
            if loop.var in names or loop.var in params:
                yield _offence(loop, f"{loop.var} hides an outer name")
            for e in (loop.lo, loop.hi):
                if e.dtype not in INDEX_TYPES:
                    yield _offence(loop, f"the bound {format_expr(e)} is {e.dtype}")
                if not free_vars(e) <= names:
                    yield _offence(loop, f"the bound {format_expr(e)} uses a variable that is not an outer one")
                steady = {o.var for o in outer if not o.kind.is_tile}
                for ld in loads(e):
                    if ld.buffer not in readable or not free_vars(ld) <= steady:
                        yield _offence(loop, f"the bound {format_expr(e)} reads what is not the same in a block")
        readable |= {s.buffer for _, s in _statements(k)}


def _grid(p: Program) -> Iterator[Offence]:
    for k in p.kernels:
        for outer, loop in _loops(k):
            if loop.kind is not Kind.GRID:
                continue
            around = outer[-1].body if outer else k.body
            if any(o.kind is not Kind.GRID for o in outer) or len(around) != 1:
                yield _offence(loop, "grid loops are outermost and perfectly nested")
        if not has_whole_teams(k):
            yield Offence(f"kernel {k.name}", f"its innermost grid loop is no team of {k.team}")


def _tiles(p: Program) -> Iterator[Offence]:
    for k in p.kernels:
        for outer, loop in _loops(k):
            if not loop.kind.is_tile:
                if any(o.kind.is_tile for o in outer):
                    yield _offence(loop, "tile loops are innermost")
            elif not (isinstance(loop.lo, Const) and isinstance(loop.hi, Const) and loop.hi.value > 0):
                yield _offence(loop, "a tile has a constant extent")


# -- expressions and statements ---------------------------------------------------------------


def _expressions(p: Program) -> Iterator[Offence]:
    params = {s.name: s.dtype for s in p.params}
    for k in p.kernels:
        table = _table(p, k)
        for outer, loop in _loops(k):
            scope = frozenset(o.var for o in outer)
            for e in (loop.lo, loop.hi):
                yield from (Offence(_at(loop), d, loop.span) for d in _ill_typed(e, table, params, scope))
        for loops, s in _statements(k):
            scope = frozenset(o.var for o in loops)
            for e in expressions(s):
                yield from (_offence(s, d) for d in _ill_typed(e, table, params, scope))


def _ill_typed(
    e: Expr, table: Mapping[str, Buffer], params: Mapping[str, DType], scope: frozenset[str]
) -> Iterator[str]:
    for n in walk(e):
        reason = _node(n, table, params, scope)
        if reason:
            yield f"{format_expr(n)}: {reason}"


def _node(n: Expr, table: Mapping[str, Buffer], params: Mapping[str, DType], scope: frozenset[str]) -> str | None:
    """Why ``n`` is not legal, its arguments apart; None where it is."""
    match n:
        case Const(value=value, dtype=dtype):
            want = bool if dtype is DType.BOOL else int if dtype.is_int else float
            return None if type(value) is want and dtype is dtype.compute else f"not a literal of {dtype}"
        case Var(name=name, dtype=dtype):
            return None if name in scope and dtype in INDEX_TYPES else "not an index variable here"
        case Param(name=name, dtype=dtype):
            return None if params.get(name) is dtype else "not a param of that type"
        case Load(buffer=name, index=index, dtype=dtype):
            if name not in table:
                return "no such buffer"
            if dtype is not table[name].dtype:
                return f"loaded as {dtype}, declared {table[name].dtype}"
            return _bad_index(table[name], index)
        case Op(op=op, args=args, dtype=dtype):
            try:
                right = result_dtype(op, [a.dtype for a in args], dtype)
            except DTypeError as error:
                return str(error)
            return None if right is dtype else f"has type {dtype}, not {right}"
    return "not an expression of this level"


def _bad_index(b: Buffer, index: Sequence[Expr]) -> str | None:
    if len(index) != len(b.shape):
        return f"{b.name} has {len(b.shape)} dimensions, indexed by {len(index)}"
    for e in index:
        if e.dtype not in INDEX_TYPES:
            return f"the index {format_expr(e)} is {e.dtype}"
    return None


def _writes(p: Program) -> Iterator[Offence]:
    for k in p.kernels:
        table = _table(p, k)
        for _, s in _statements(k):
            b = table.get(s.buffer)
            if b is None:
                yield _offence(s, f"no buffer {s.buffer}")
                continue
            if b.space is Space.INPUT:
                yield _offence(s, f"{b.name} is an input")
            reason = _bad_index(b, s.index)
            if reason:
                yield _offence(s, reason)
            if s.guard is not None and s.guard.dtype is not DType.BOOL:
                yield _offence(s, f"the guard is {s.guard.dtype}")
            want = b.dtype if isinstance(s, Update) else b.dtype.compute
            if s.value.dtype is not want:
                yield _offence(s, f"the value is {s.value.dtype}, {b.name} takes {want}")
            if isinstance(s, Update):
                yield from _combiner(s, b)


def _atomics(p: Program) -> Iterator[Offence]:
    """The rules of a scattered buffer: its initial value, its only statement, and where that stands."""
    for k in p.kernels:
        found = _statements(k)
        for b in k.locals:
            if b.initial is not None:
                yield Offence(b.name, "a local has no initial value", b.span)
        for loops, s in found:
            if not (isinstance(s, Update) and s.atomic):
                continue
            target = _table(p, k).get(s.buffer)
            if target is None or target.space not in (Space.OUTPUT, Space.TEMP):
                yield _offence(s, "a scatter goes to an output or a temp")
            elif not is_exact(s.op, target.dtype):
                yield _offence(s, f"{s.op} of {target.dtype} depends on the order")
            elif target.initial != identity(s.op, target.dtype).value:
                yield _offence(s, f"{target.name} does not start from the identity of {s.op}")
            if sum(x.buffer == s.buffer for _, x in found) > 1:
                yield _offence(s, f"another statement writes {s.buffer}")
            if any(ld.buffer == s.buffer for _, x in found for e in expressions(x) for ld in loads(e)):
                yield _offence(s, f"the kernel reads {s.buffer}")
            if any(loop.kind.is_reduction or loop.kind.is_ordered for loop in loops):
                yield _offence(s, "a scatter stands in parallel loops")
    scattered = {s.buffer for k in p.kernels for _, s in _statements(k) if isinstance(s, Update) and s.atomic}
    for b in p.buffers:
        if b.initial is not None and b.name not in scattered:
            yield Offence(b.name, "only a scattered buffer has an initial value", b.span)


def _combiner(s: Update, b: Buffer) -> Iterator[Offence]:
    if s.op not in COMBINERS:
        yield _offence(s, f"unknown combiner {s.op}")
    elif b.dtype is not b.dtype.compute:
        yield _offence(s, f"{b.name} is {b.dtype}; an accumulator has a compute type")
    else:
        try:
            reduce_dtype(s.op, s.value.dtype)
        except DTypeError as error:
            yield _offence(s, str(error))


def _one_writer(p: Program) -> Iterator[Offence]:
    writers: dict[str, list[int]] = {}
    for n, k in enumerate(p.kernels):
        for name in dict.fromkeys(s.buffer for _, s in _statements(k)):
            writers.setdefault(name, []).append(n)
    for b in p.buffers:
        found = writers.get(b.name, [])
        if b.space in (Space.OUTPUT, Space.TEMP) and len(found) != 1:
            many = ", ".join(p.kernels[n].name for n in found) or "none"
            yield Offence(b.name, f"written by one kernel, not by {many}", b.span)
    for n, k in enumerate(p.kernels):
        for _, s in _statements(k):
            for ld in (ld for e in expressions(s) for ld in loads(e)):
                if any(w > n for w in writers.get(ld.buffer, [])):
                    yield _offence(s, f"{ld.buffer} is written by a later kernel")


def _initialised(p: Program) -> Iterator[Offence]:
    """Reads and updates before the first store, in program order, in the kernel that writes.

    What a step of a recurrence reads in global memory, a store in the same sequential loop writes.
    """
    initial = {b.name for b in p.buffers if b.initial is not None}
    for k in p.kernels:
        own = {b.name for b in k.locals} | {s.buffer for _, s in _statements(k)}
        local = {b.name for b in k.locals}
        stored = set(initial)
        steps = [(s.buffer, x) for loops, s in _statements(k) for x in loops if x.kind.is_ordered]
        for loops, s in _statements(k):
            names = [ld.buffer for e in expressions(s) for ld in loads(e)]
            scanned = {x.var for x in loops if x.kind.is_scan}
            earlier = {b for b, x in steps if (b not in local or scanned) and any(x is y for y in loops)}
            names = [n for n in names if n not in earlier]
            names += [s.buffer] if isinstance(s, Update) else []
            for name in names:
                if name in own and name not in stored:
                    yield _offence(s, f"nothing is stored to {name} before")
            if isinstance(s, Store):
                stored.add(s.buffer)


# -- the promises of loop kinds ---------------------------------------------------------------


def _independent(p: Program) -> Iterator[Offence]:
    for k in p.kernels:
        yield from _dependences(k)


@by_identity(128)
def _dependences(k: Kernel) -> tuple[Offence, ...]:
    """The iterations that break the promises of the loops of ``k``; most passes leave most kernels as they are."""
    return tuple(_between_iterations(k))


def _between_iterations(k: Kernel) -> Iterator[Offence]:
    local, team = private_loops(k), team_loop(k)
    written: dict[str, list[tuple[tuple[Loop, ...], Store | Update]]] = {}
    for loops, s in _statements(k):
        written.setdefault(s.buffer, []).append((loops, s))
        shared = _shared(loops, s.buffer, local)
        if isinstance(s, Update) and s.atomic:
            continue
        unknown = undetermined(s.index, shared, s.guard)
        if unknown:
            yield _offence(s, f"iterations of {', '.join(unknown)} may write the same element")
    for loops, s in _statements(k):
        for ld in (ld for e in expressions(s) for ld in loads(e)):
            for around, w in written.get(ld.buffer, []):
                both = tuple(a for a, b in zip(loops, around, strict=False) if a is b)
                both = outside_of_step(ld.index, w.index, both)
                both = tuple(x for x in both if x is not team and x in _shared(both, ld.buffer, local))
                if not same_iteration(ld.index, w.index, both):
                    yield _offence(s, f"reads {format_expr(ld)}, which another iteration may write")


def _shared(loops: tuple[Loop, ...], name: str, local: Mapping[str, tuple[Loop, ...]]) -> tuple[Loop, ...]:
    """The loops of ``loops`` whose iterations have one copy of ``name`` between them."""
    own = local.get(name, ())
    return tuple(x for x in loops if not any(x is o for o in own) or x.kind.is_ordered)


def _reductions(p: Program) -> Iterator[Offence]:
    for k in p.kernels:
        private = private_loops(k)
        for _, loop in _loops(k):
            if not loop.kind.is_reduction:
                continue
            inside = [s for _, s in statements(loop.body)]
            mine = {n for n, loops in private.items() if any(o is loop for o in loops)}
            updated = {s.buffer for s in inside if isinstance(s, Update)} - mine
            for s in inside:
                if isinstance(s, Store) and s.buffer not in mine:
                    yield _offence(s, f"stores inside the {loop.kind.value} loop {loop.var}")
                for ld in (ld for e in expressions(s) for ld in loads(e)):
                    if ld.buffer in updated:
                        yield _offence(s, f"reads {ld.buffer} while the {loop.kind.value} loop {loop.var} updates it")
            ops: dict[str, str] = {}
            for s in inside:
                if isinstance(s, Update) and ops.setdefault(s.buffer, s.op) != s.op:
                    yield _offence(s, f"{s.buffer} is updated by {ops[s.buffer]} and {s.op}")


RULES: Mapping[str, Rule] = {
    "names are unique": _names,
    "declarations are sound": _declarations,
    "loop bounds are integers over outer variables and inputs": _bounds,
    "expressions are typed": _expressions,
    "writes fit their buffers": _writes,
    "grid loops come first": _grid,
    "tile loops are innermost and constant": _tiles,
    "one kernel writes a buffer, before it is read": _one_writer,
    "an element is written before it is read": _initialised,
    "iterations of parallel loops are independent": _independent,
    "reduction loops only update": _reductions,
    "scatters are exact": _atomics,
}


# -- the tiled form ---------------------------------------------------------------------------


def verify_tiled(kernel: Kernel) -> None:
    """Raise VerifyError unless ``kernel`` is in tiled form (``scalar.ir``)."""
    extents: dict[str, int] = {}
    local = {b.name for b in kernel.locals}
    for offence in _tiled(kernel.body, local, extents):
        raise VerifyError(_LEVEL, "tiled form", offence.node, f"{offence.detail} (kernel {kernel.name})", offence.span)


def _tiled(body: Sequence[Stmt], local: set[str], extents: dict[str, int]) -> Iterator[Offence]:
    for s in body:
        if not isinstance(s, Loop):
            yield from _tiled_nest((), s, local, extents)
        elif s.kind in (Kind.GRID, Kind.SEQ):
            yield from _tiled(s.body, local, extents)
        elif s.kind.is_tile:
            loops: list[Loop] = []
            inner: Stmt = s
            while isinstance(inner, Loop):
                if not inner.kind.is_tile or len(inner.body) != 1:
                    yield _offence(inner, "tile loops are perfect nests around one statement")
                    return
                loops.append(inner)
                inner = inner.body[0]
            yield from _tiled_nest(tuple(loops), inner, local, extents)
        else:
            yield _offence(s, f"a {s.kind.value} loop is left")


def _tiled_nest(
    loops: tuple[Loop, ...], s: Store | Update, local: set[str], extents: dict[str, int]
) -> Iterator[Offence]:
    for loop in loops:
        if not (isinstance(loop.lo, Const) and loop.lo.value == 0 and isinstance(loop.hi, Const)):
            yield _offence(loop, "a tile loop starts at 0 and has a constant extent")
            return
        if extents.setdefault(loop.var, int(loop.hi.value)) != loop.hi.value:
            yield _offence(loop, f"{loop.var} has extent {extents[loop.var]} elsewhere")
    names = {loop.var for loop in loops}
    scanned = {loop.var for loop in loops if loop.kind.is_scan}
    states = loops[-1] if scanned and len(loops) > 1 and loops[-2].kind.is_scan else None
    steps = loops[-2 if states else -1] if loops else None
    single = steps and steps.kind.is_scan and len(scanned) == 1 and isinstance(s, Store) and s.buffer in local
    if scanned and (not single or (states and states.kind is not Kind.TILE)):
        yield _offence(s, "the loop of a scan is the innermost one, or around one of its states; it stores to a local")
    accesses = [(ld.buffer, ld.index) for e in expressions(s) for ld in loads(e)] + [(s.buffer, s.index)]
    for name, index in accesses:
        if name not in local:
            continue
        if scanned and steps and name == s.buffer:
            index = tuple(neighbour(i, steps.var) for i in index)
            if states and isinstance(index[-1], Const) and 0 <= index[-1].value < int(extents[states.var]):
                index = (*index[:-1], Var(states.var))
        variables = [i.name for i in index if isinstance(i, Var)]
        if len(variables) != len(index) or len(set(variables)) != len(index) or not set(variables) <= names:
            yield _offence(s, f"{name} is not accessed at plain, distinct tile variables")
    reduced = {loop.var for loop in loops if loop.kind is Kind.TILE_RED}
    if isinstance(s, Store) and reduced:
        yield _offence(s, "a store under a tile.red loop")


__all__ = ["RULES", "Offence", "verify", "verify_tiled"]
