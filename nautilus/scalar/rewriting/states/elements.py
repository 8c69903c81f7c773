"""The elements of small states of a recurrence, each of which is a number of one thread.

A Kalman filter, a Riccati equation and a system of three differential equations multiply small matrices in each
step.  Elements of such a state that threads share would be exchanged in memory, once for each product::

    s[b, t, i] sum= F[i, j] * x[b, t - 1, j];  x[b, t, i] = s[b, t, i] + u[b, t]         i, j in 0 .. 1

As numbers they are in the registers of the thread of ``b``, and no step waits for another thread::

    s_0 = F[0, 0] * x_0' + F[0, 1] * x_1';  s_1 = F[1, 0] * x_0' + F[1, 1] * x_1';  x_0 = s_0 + u[b, t];  ...

What other kernels read of a state is stored at its place in the tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import product
from math import prod

from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import COMBINERS, Const, Expr, Load, Op, free_vars, identity, rewrite, substitute, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.simplify import simplify, simplify_value
from nautilus.core.index.sizes import Extent, as_extent, nominal
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.rewriting.recurrence_reads import Steps
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

ELEMENTS = 256  # elements of all tensors of a step, and of the earlier steps that it reads
NODES = 3000  # operations and reads of a step
#: Microseconds of a node for a warp that has a scheduler for itself, and of a nest of a step for blocks that run at the
#: same time and exchange elements in memory; both are those that the model predicts for an H200.
NODE, NEST = 0.0007, 0.12
SCHEDULERS, BLOCKS = 4, 16  # of a multiprocessor: its schedulers, and the blocks with a nest that it runs
MULTIPROCESSORS = machine(DEFAULT_TARGET).multiprocessors


def as_elements(steps: Steps, taken: Collection[str]) -> Steps | None:
    """``steps`` with a definition for each element; None where they are too many, or a position is no number.

    ``taken``: names that no definition has.
    """
    counts = [_count(steps, d) for d in steps.defs]
    nodes = sum(n * terms * _nodes(d) for d, (n, terms) in zip(steps.defs, counts, strict=True))
    earlier = {d.name: 0 for d in steps.defs}
    for ld in (ld for d in steps.defs for ld in steps.reads(d)):
        earlier[steps.names[ld.buffer]] = max(earlier[steps.names[ld.buffer]], steps.back(ld))
    held = sum(n * (1 + earlier[d.name]) for d, (n, _) in zip(steps.defs, counts, strict=True))
    if held > ELEMENTS or nodes > NODES or 0 in (n * terms for n, terms in counts) or not _pays(steps, nodes):
        return None
    used = {*taken, *steps.names, *steps.made}
    names: dict[str, str] = {}  # the name by which an element is read -> its definition
    made: dict[str, list[tuple[Mapping[str, Expr], str]]] = {}
    for d in steps.defs:
        reading = next((read for read, name in steps.names.items() if name == d.name), d.name)
        made[d.name] = []
        for env in _positions(steps, d):
            end = "".join(f"_{e.value}" for e in env.values() if isinstance(e, Const))
            name = unused(f"{d.name}{end}", used) if env else d.name
            used.add(name)
            names[f"{reading}{end}"] = name
            made[d.name].append((env, name))
    defs: list[Def] = []
    for d in steps.defs:
        for place, name in made[d.name]:
            element = _at(steps, d, place, name)
            if element is None:
                return None
            defs.append(element)
    return Steps(tuple(defs), steps.shared, steps.step, names)


def _pays(steps: Steps, nodes: int) -> bool:
    """Whether a step of ``nodes`` in each thread is predicted to be faster than nests that blocks share."""
    positions = prod(nominal(as_extent(loop.hi)) for loop in steps.shared)
    warps = -(-positions // 32) / (SCHEDULERS * MULTIPROCESSORS)
    nests = len(steps.defs) * -(-positions // (BLOCKS * MULTIPROCESSORS))
    return NODE * nodes * max(1.0, warps) < NEST * nests


def _count(steps: Steps, d: Def) -> tuple[int, int]:
    """The elements of ``d`` in a step, and the terms of each; 0 where they are not known."""
    own = [a.extent if isinstance(a.extent, int) else 0 for a in steps.own(replace(d, red=()))]
    return prod(own), prod(a.extent if isinstance(a.extent, int) else 0 for a in d.red)


def _nodes(d: Def) -> int:
    """The operations and reads of an element or term of ``d``, where a function counts by its instructions."""
    return 1 + sum(_instructions(e) for e in walk(d.value))


def _instructions(e: Expr) -> int:
    match e:
        case Load():
            return 1
        case Op(op=op):
            return max(1, round(FUNCTIONS[op].slots)) if op in FUNCTIONS else 1
    return 0


def _positions(steps: Steps, d: Def) -> Iterator[dict[str, Expr]]:
    """The position of each element of ``d``, as the numbers of its own axes."""
    own = steps.own(replace(d, red=()))
    for p in product(*(range(a.extent) if isinstance(a.extent, int) else () for a in own)):
        yield {a.name: integer(n) for a, n in zip(own, p, strict=True)}


def _at(steps: Steps, d: Def, env: Mapping[str, Expr], name: str) -> Def | None:
    """The element of ``d`` at ``env``, called ``name``; None where it reads a state at a position that is no number.

    Where a condition excludes a read, such as that of the neighbour of the first element, nothing is left of it.
    """
    whole = _summed(d)
    found = True

    def rule(e: Expr) -> Expr | None:
        nonlocal found
        if not (isinstance(e, Load) and e.buffer in steps.names):
            return None
        places, shape = steps.places(steps.source(e)), steps.source(e).buffer.shape
        index = [simplify(x) if n in places else x for n, x in enumerate(e.index)]
        at = [x for n, x in enumerate(index) if n in places]
        sizes = [m for n, m in enumerate(shape) if n in places]
        found = found and all(_is_inside(x, m) for x, m in zip(at, sizes, strict=True))
        end = "".join(f"_{x.value}" for x in at if isinstance(x, Const))
        return replace(e, buffer=f"{e.buffer}{end}", index=tuple(index))

    def put(e: Expr) -> Expr:
        return rewrite(simplify_value(simplify(substitute(e, env))), rule)

    value, guard = put(whole.value), None if whole.guard is None else put(whole.guard)
    index = tuple(substitute(e, env) for e in d.index)
    par = tuple(a for a in d.par if a.name not in env)
    return replace(whole, name=name, par=par, value=value, guard=guard, at=index) if found else None


def _is_inside(position: Expr, size: Extent) -> bool:
    return isinstance(position, Const) and isinstance(size, int) and 0 <= position.value < size


def _summed(d: Def) -> Def:
    """``d`` with the expression of all terms in place of a reduction; neighbours are combined first."""
    if d.op is None:
        return d
    over = [a.name for a in d.red]
    apart = d.guard is not None and bool(free_vars(d.guard) & set(over))
    binary, start = COMBINERS[d.op].binary, identity(d.op, d.value.dtype)

    def under(value: Expr) -> Expr:
        return value if d.guard is None else Op("select", (d.guard, value, start), value.dtype, d.span)

    points = product(*(range(a.extent) if isinstance(a.extent, int) else () for a in d.red))
    each = under(d.value) if apart else d.value
    terms = [substitute(each, dict(zip(over, map(integer, p), strict=True))) for p in points]
    while len(terms) > 1:
        pairs = (terms[n : n + 2] for n in range(0, len(terms), 2))
        terms = [reduce(lambda x, y: Op(binary, (x, y), d.value.dtype, d.span), pair) for pair in pairs]
    return replace(d, red=(), op=None, value=terms[0] if apart else under(terms[0]), guard=None)
