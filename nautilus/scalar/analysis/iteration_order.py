"""The iteration order of the pieces of a partitioned reduction loop (``KernelPlan.iteration_order``).

``partition`` splits a reduction loop into up to three pieces in ascending order.  The combiner of a reduction is
associative and commutative, and the repair term of a rolling update holds for any two references (``repair``), so the
pieces may run in any order; only the rounding of sums changes.  A software pipeline needs a first piece that certainly
runs at least once: under a causal mask the diagonal piece, not the full one.

:func:`ordered` starts with a piece that is provably not empty, preferably a mixed one, and continues with its
neighbours, so that every piece adjoins an earlier one.  :func:`obstacle` gives the reason why the carried state of a
loop does not permit reordering: a spec contains reductions only, but a Scalar IR file may contain any recurrence.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import COMBINERS, Expr, Load, Op, free_vars, loads
from nautilus.scalar.ir import Loop, Store, Update, computed, statements


def ordered(pieces: tuple[Loop, ...], mixed: tuple[bool, ...], certain: tuple[bool, ...]) -> tuple[Loop, ...]:
    """``pieces`` (ascending) outward from the last mixed one that is not empty; unchanged if all may be empty."""
    sure = [n for n, c in enumerate(certain) if c]
    if not sure:
        return pieces
    first = max((n for n in sure if mixed[n]), default=sure[-1])
    below, above = pieces[:first], pieces[first + 1 :]
    return (pieces[first], *reversed(below), *above)


def obstacle(loop: Loop, locals_: frozenset[str]) -> str | None:
    """The reason why the iterations of ``loop`` may not be reordered, or None.

    A carried local must be an accumulator of one combiner.  Its assignments are updates, repairs (``A = A * factor`` or
    ``A = A + shift``), and the copy ``r = r_new`` of its next value.  An accumulator whose element reads running values
    needs a repair.  The certificates prove the repair term
    (:mod:`nautilus.scalar.analysis.repair.certificate`).
    """
    leaves = [s for _, s in statements(loop.body)]
    follows = _continuations(leaves)
    running = _carried(leaves) & locals_
    tainted = _tainted(leaves, running | follows.keys())
    for s in leaves:
        if s.buffer not in locals_ and loop.var not in frozenset().union(*map(free_vars, s.index)):
            return f"{s.buffer} is stored in every iteration"
        if s.buffer not in locals_ and _reads(s) & tainted:
            return f"{s.buffer} is stored from a running value"
    for name in sorted(running):
        mine = [s for s in leaves if follows.get(s.buffer, s.buffer) == name]
        reason = _recurrence(name, mine, follows, tainted)
        if reason is not None:
            return reason
    return None


def _recurrence(name: str, mine: list[Store | Update], follows: dict[str, str], tainted: set[str]) -> str | None:
    """The reason why the assignments to carried ``name`` are not one running reduction, or None."""
    own = {name, *(f for f, of in follows.items() if of == name)}
    combiners = {s.op for s in mine if isinstance(s, Update)}
    if len(combiners) != 1:
        return f"{name} is carried but no accumulator of one combiner"
    repaired = False
    for s in mine:
        match s:
            case Store(value=Load(buffer=b)) if b in own:
                continue
            case Store(value=Op(op=("mul" | "add") as op, args=(Load(buffer=b), factor))) if b in own:
                fits = (op == "mul" or combiners <= {"max", "min"}) and not _named(factor) & own
                if not fits or not _named(factor) & tainted:
                    return f"{name} has an assignment that is neither an update nor a repair"
                repaired = True
            case Store():
                return f"{name} is overwritten"
    needy = any(isinstance(s, Update) and (_reads(s) - own) & tainted for s in mine)
    if needy and not repaired:
        return f"{name} reads a running value and is not repaired"
    if any(isinstance(s, Update) and _named(s.value) & own for s in mine):
        return f"{name} reads itself"
    return None if combiners <= COMBINERS.keys() else f"{name} has an unknown combiner"


def _continuations(leaves: list[Store | Update]) -> dict[str, str]:
    """``r_new -> r`` where an iteration starts with ``r_new = r`` and ends with ``r = r_new``."""
    starts = {(s.buffer, s.value.buffer) for s in leaves if isinstance(s, Store) and isinstance(s.value, Load)}
    carried = _carried(leaves)
    return {a: b for a, b in starts if (b, a) in starts and b in carried and a not in carried}


def _carried(leaves: list[Store | Update]) -> frozenset[str]:
    """Buffers whose value at the start of an iteration is used in it."""
    stored: set[str] = set()
    carried: set[str] = set()
    for s in leaves:
        reads = _reads(s) | ({s.buffer} if isinstance(s, Update) or s.guard is not None else set())
        carried |= reads - stored
        if isinstance(s, Store) and s.guard is None:
            stored.add(s.buffer)
    return frozenset(carried & {s.buffer for s in leaves})


def _tainted(leaves: list[Store | Update], running: set[str] | frozenset[str]) -> set[str]:
    """Locals that depend on a running value."""
    out = set(running)
    for s in leaves:
        if _reads(s) & out:
            out.add(s.buffer)
    return out


def _reads(s: Store | Update) -> set[str]:
    return set().union(*(_named(e) for e in computed(s)))


def _named(e: Expr) -> set[str]:
    return {ld.buffer for ld in loads(e)}
