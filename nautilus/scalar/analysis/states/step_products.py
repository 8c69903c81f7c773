"""Products of matrices in the steps of a recurrence.

A reduction of a step is a product of matrices along an independent axis ``v``, the *lanes*, if it sums products of

* a factor made from tensors of the recurrence, which has no other axis of the result but ``v``, and
* a factor from memory that differs from step to step, with an axis of the result and without ``v``::

      h[v, i] sum= s[v, r] * M[step, r, i]

Positions along ``v`` that share a block load ``M`` once, and matrix units compute the product.

Each tensor of the recurrence has the own axis of what it is made from element by element.  A product whose result has
the axis that it sums over, in this sense, has no lanes: the positions of its result are those of other threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nautilus.core.expr.nodes import Const, Expr, Load, Op, free_vars, loads
from nautilus.core.expr.products import factors
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.ir import Kernel, Kind, Loop, Store, Update, extent, statements

TILES = (64, 32, 16)  # lanes of a block
MOST = 8192  # elements of the tile of a nest: 64 registers of each of 128 threads
LEAST = 16  # elements of an axis


@dataclass(frozen=True, slots=True)
class StepProducts:
    """The lanes of all products of a step, in blocks of ``tile``.

    ``elements``: those of the largest tile.  ``loaded``: the bytes of the factors from memory in a step.  ``halves``:
    all factors have 16 bits.
    """

    lanes: Loop
    tile: int
    elements: int
    loaded: int
    halves: bool


def step_products(k: Kernel) -> StepProducts | None:
    """The products of matrices that all reductions in the steps of the recurrence ``k`` are; None where one is none."""
    form = form_of(k)
    nests = [] if form is None else list(statements(form.step.body))
    sums = [(loops, s) for loops, s in nests if isinstance(s, Update)]
    if form is None or not sums or any(extent(x) is None for loops, _ in nests for x in loops):
        return None
    if _returns(form, [s for _, s in nests]):
        return None
    own = max(prod(extent(x) or 1 for x in loops if x.kind is Kind.PAR) for loops, _ in nests)
    for lanes in sorted(form.shared, key=lambda x: -(extent(x) or 0)):
        fitting = (n for n in TILES if (extent(lanes) or 1) % n == 0 and n * own <= MOST)
        tile = next(fitting, 0)
        found = [_product(form, lanes.var, loops, s) for loops, s in sums]
        products = [f for f in found if f is not None]
        if tile and len(products) == len(found):
            loaded = sum(f.bytes for f in products)
            return StepProducts(lanes, tile, tile * own, loaded, all(f.halves for f in products))
    return None


def _returns(form: Form, body: Sequence[Store | Update]) -> bool:
    """Whether a sum has the axis of its result (module docstring)."""
    same = {name: name for name, roles in form.roles.items() if "" in roles}

    def root(name: str) -> str:
        while same[name] != name:
            name = same[name]
        return name

    for s in body:
        for ld in loads(s.value) if isinstance(s, Store) and s.buffer in same else ():
            if ld.buffer in same:
                same[root(ld.buffer)] = root(s.buffer)
    sums = [s for s in body if isinstance(s, Update) and s.buffer in same]
    return any(ld.buffer in same and root(ld.buffer) == root(s.buffer) for s in sums for ld in loads(s.value))


@dataclass(frozen=True, slots=True)
class _Product:
    bytes: int
    halves: bool


def _product(form: Form, lanes: str, loops: Sequence[Loop], s: Update) -> _Product | None:
    """The product of matrices that ``s`` sums; None where it is none."""
    sizes = {x.var: extent(x) or 0 for x in loops}
    red = {x.var for x in loops if x.kind is Kind.RED}
    own = sizes.keys() - red
    if s.op != "sum" or s.guard is not None or len(red) != 1 or len(own) != 1 or not all(map(fits, sizes.values())):
        return None
    parts = factors(s.value)
    right = [f for f in parts if free_vars(f) & own]
    left = [f for f in parts if not free_vars(f) & own]
    read = [ld for f in right for ld in loads(f)]
    used = frozenset[str]().union(*map(free_vars, right))
    of_steps = any(ld.buffer in form.roles for f in left for ld in loads(f))
    if not of_steps or any(ld.buffer in form.roles for ld in read):
        return None
    if lanes in used or not own | red <= used or form.step.var not in used:
        return None
    size = max(ld.dtype.bytes for ld in read) * prod(sizes.values())
    return _Product(size, len(parts) == 2 and all(map(_has_half, parts)))


def fits(extent: int) -> bool:
    """Whether an axis of ``extent`` elements has the tile of a matrix instruction without a rest."""
    return extent == LEAST or (extent > 0 and extent % (2 * LEAST) == 0)


def _has_half(e: Expr) -> bool:
    """Whether ``e`` is a number of 16 bits in a wider type."""
    match e:
        case Load(dtype=dtype) | Op(op="narrow", dtype=dtype):
            return dtype.is_half
        case Op(op="cast", args=(x,)):
            return _has_half(x)
        case Op(op="select", args=(_, a, b)):
            return all(isinstance(x, Const) or _has_half(x) for x in (a, b))
    return False
