"""Factors of recurrences that are exponentials relative to a running reference, and so at most 1.

In a stabilised recurrence the reference is a maximum that each step takes of its own exponent and of others, as in the
matrix state of an xLSTM::

    m[t] = max(f[t] + m[t - 1], i[t])           a recurrence of its own
    a[t] = exp(f[t] + m[t - 1] - m[t])          the factor of another one

After the first step ``f[t] + m[t - 1] <= m[t]``.  A running maximum is such a reference too, as in a softmax that is
found element by element: ``m[t - 1] <= m[t]``, and so is the larger one of it and of a number.  The factor of the first
step, which nothing uses, may be anything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, loads, rewrite, substitute
from nautilus.core.expr.products import signed_terms
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import Ranges, simplify, simplify_value
from nautilus.scalar.analysis.definitions import Def, is_recurrence, writes_of
from nautilus.scalar.analysis.domains import running
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.ir import Program, Store, statements
from nautilus.scalar.rewriting import find_defs


def expanded(program: Program, e: Expr) -> Expr:
    """``e`` with the values of the elementwise tensors that it reads, which are not rounded and no states.

    A state is a tensor whose value reads it, by way of others too.
    """
    defs, states = find_defs(program), dict[str, bool]()

    def own(n: Load) -> Expr | None:
        if program.buffer(n.buffer).space is not Space.TEMP:
            return None
        d = defs.get(n.buffer)
        value = _step(program, n) if d is None else _element(d, n)
        return None if value is None or value.dtype is not n.dtype else value

    def is_state(n: Load) -> bool:
        if n.buffer not in states:
            seen, left = set[str](), [n]
            while left:
                read = list(loads(own(left.pop()) or integer(0)))
                left += [ld for ld in read if ld.buffer not in seen]
                seen.update(ld.buffer for ld in read)
            states[n.buffer] = n.buffer in seen
        return states[n.buffer]

    def rule(n: Expr) -> Expr | None:
        value = own(n) if isinstance(n, Load) else None
        return None if value is None or not isinstance(n, Load) or is_state(n) else rewrite(value, rule)

    return rewrite(e, rule)


def _element(d: Def, read: Load) -> Expr | None:
    """What ``d`` stores that ``read`` reads; None where it is not elementwise."""
    if d.op is not None or d.guard is not None or d.at is not None or d.scatter is not None:
        return None
    return substitute(d.value, {a.name: i for a, i in zip(d.par, read.index, strict=True)})


def below_reference(program: Program, form: Form, e: Expr, steps: int) -> bool:
    """Whether ``e``, over the steps of ``form`` after the first one, is an exponential relative to a reference."""
    later: Ranges = {form.step.var: (1, max(steps - 1, 2))}

    def simple(x: Expr) -> Expr:
        return simplify_value(simplify(expanded(program, x), later))

    power = simple(e)
    if not (isinstance(power, Op) and power.op == "exp"):
        return False
    terms = _unbounded(_signed(power.args[0]))
    for m in [n for n, count in terms.items() if count < 0 and isinstance(n, Load)]:
        value = _step(program, m) or _running(find_defs(program).get(m.buffer), m)
        above = terms + Counter()  # the positive ones
        below = Counter({n: -count for n, count in terms.items() if count < 0}) - Counter([m])
        for p in () if value is None else _maxima(simple(value)):
            own = _signed(p)
            own.update(below)
            if {n: c for n, c in own.items() if c} == dict(above):
                return True
    return False


def _step(program: Program, m: Load) -> Expr | None:
    """What the step of a recurrence stores that ``m`` reads; None where no recurrence stores it."""
    for k in program.kernels:
        if not is_recurrence(k) or m.buffer not in writes_of(k) or (form := form_of(k)) is None:
            continue
        stores = [s for _, s in statements(form.step.body) if s.buffer == m.buffer]
        if len(stores) != 1 or not isinstance(s := stores[0], Store) or s.guard is not None:
            return None
        own: dict[str, Expr] = {e.name: i for e, i in zip(s.index, m.index, strict=True) if isinstance(e, Var)}
        for e, i in zip(s.index, m.index, strict=True) if form.reverse else ():
            if linear(e).slope(form.step.var) == -1:  # the step whose position along the axis is ``i``
                own[form.step.var] = simplify(calc("sub", calc("add", e, Var(form.step.var)), i))
        return substitute(s.value, own) if len(own) == len(s.index) else None
    return None


def _unbounded(terms: Counter[Expr]) -> Counter[Expr]:
    """The difference of ``a`` and ``b`` where ``terms`` is that of ``max(a, c)`` and ``max(b, c)``: it has its sign."""
    sides = {count: n.args for n, count in terms.items() if isinstance(n, Op) and n.op == "max" and len(n.args) == 2}
    if len(terms) == 2 and sides.keys() == {1, -1} and isinstance(sides[1][1], Const) and sides[1][1] == sides[-1][1]:
        return Counter({sides[1][0]: 1, sides[-1][0]: -1})
    return terms


def _running(d: Def | None, m: Load) -> Expr | None:
    """The step of the running maximum ``d``, from either end, that ``m`` reads; None where it is none."""
    if d is None or d.op != "max" or len(d.red) != 1 or d.at is not None or d.buffer.dtype is not d.value.dtype:
        return None
    (u,) = d.red
    lag = 0 if running(d.guard, u, d.par) else 1
    t, reverse = running(d.guard, u, d.par, lag) or (None, False)
    if t is None or t.name in free_vars(d.value):
        return None
    n = d.par.index(t)
    earlier = calc("add" if reverse else "sub", m.index[n], 1)
    index = (*m.index[:n], earlier, *m.index[n + 1 :])
    own = {a.name: i for a, i in zip(d.par, m.index, strict=True)} | {u.name: earlier if lag else m.index[n]}
    return Op("max", (replace(m, index=index), substitute(d.value, own)), m.dtype)


def _maxima(e: Expr) -> list[Expr]:
    match e:
        case Op(op="max", args=(a, b)):
            return [*_maxima(a), *_maxima(b)]
    return [e]


def _signed(e: Expr) -> Counter[Expr]:
    """How often each term of the sum ``e`` is added; less than 0: subtracted."""
    found = Counter[Expr]()
    for term, negative in signed_terms(e):
        found[term] += -1 if negative else 1
    return found
