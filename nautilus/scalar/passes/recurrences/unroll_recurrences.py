"""``unroll-recurrences``: a recurrence of few large steps becomes definitions, those of each step.

A step whose positions need each other, such as a stencil over a grid or a product with a matrix, runs in one block,
because only the threads of a block wait for each other.  As definitions of their own the steps are kernels, each of
which fills the GPU::

    u[t, x] = f(u[t - 1, x - 1], u[t - 1, x + 1])       steps t = 0 .. 2
    u_0[x] = f(...);  u_1[x] = f(u_0[x - 1], u_0[x + 1]);  u_2[x] = f(u_1[x - 1], u_1[x + 1])

A tensor that is an output, or that other kernels read at a step that is no number, is put together by one more kernel::

    u[t, x] = select(t == 0, u_0[x], select(t == 1, u_1[x], u_2[x]))

Invariants: the number of steps is known; a condition excludes every read before the first step once the step is a
number.  No sum of floats that is a product of matrices reads a tensor of less than 32 bits: a factor of one may be
rounded (``narrow``), and the stated bound of a recurrence is one without such roundings.

Profitability.  A step in one block costs :data:`POINT` microseconds for each element and :data:`TERM` for each term
of a reduction; a kernel costs :data:`LAUNCH`, and its elements are spread over :data:`BLOCKS` blocks.  The rates are
those that the cost model predicts for stencils and for products with vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import FALSE
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, loads, rewrite
from nautilus.core.expr.products import factors
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import extent_expr
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.analysis.states.recurrences import Form, form_of, nests
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, extent, statements, with_expressions
from nautilus.scalar.passes.simplify import simplify_statement
from nautilus.scalar.rewriting import loop_assumptions, map_statements, substituted, with_body
from nautilus.targets.memory_rates import LAUNCH
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

MOST = 64  # kernels that a recurrence becomes: the time of a compilation grows with them
POINT = 2e-3  # microseconds of an element in one block
TERM = 3e-5  # the same time for a term of a reduction
BLOCKS = machine(DEFAULT_TARGET).multiprocessors  # blocks that run at the same time
MOVED = 3e5  # elements of f32 that a kernel reads and writes in a microsecond
GAIN = 0.6  # steps become kernels if their predicted time is less than this share of that of the recurrence


@dataclass(frozen=True, slots=True)
class UnrollRecurrences:
    """Make definitions of the steps of recurrences; ``always``: of any recurrence that may be (for tests)."""

    always: bool = False

    name = "unroll-recurrences"
    sees_recurrences = True

    def apply(self, program: Program) -> Program:
        """The program with definitions in place of recurrences."""
        for name in [k.name for k in program.kernels if is_recurrence(k)]:
            k = next(k for k in program.kernels if k.name == name)  # it reads steps of those before it
            form = form_of(k)
            steps = None if form is None else extent(form.step)
            if form is None or steps is None:
                continue
            if self.always or _pays(form, steps, len(_whole(program, k, form, steps))):
                program = _unrolled(program, k, form, steps) or program
        return program


def _pays(form: Form, steps: int, whole: int) -> bool:
    """Whether the kernels of the steps are predicted to be faster than the recurrence.

    ``whole``: tensors that are put together from their steps.
    """
    own = nests(form.step.body)
    sizes = [_size(nest) for nest in own]
    shared = prod(extent(x) or 0 for x in form.shared)
    each = max(1, sum(terms > 0 for _, terms in sizes))  # kernels: what follows a sum at its position is in its kernel
    if not shared or any(points == 0 for points, _ in sizes) or steps * each > MOST:
        return False
    block = sum(POINT * points + TERM * terms for points, terms in sizes)
    put = whole * (LAUNCH / steps + shared * max(points for points, _ in sizes) / MOVED)
    return LAUNCH * each + put + block * shared / BLOCKS < GAIN * block * -(-shared // BLOCKS)


def _size(nest: Sequence[Stmt]) -> tuple[int, int]:
    """Elements and terms of a nest of a step, for each position along the independent axes; 0 where not known."""
    found = [(loops, s) for loops, s in statements(tuple(nest))]
    sizes = [prod(extent(x) or 0 for x in loops) for loops, _ in found]
    return min(sizes), max((n for n, (_, s) in zip(sizes, found, strict=True) if isinstance(s, Update)), default=0)


# -- definitions ----------------------------------------------------------------------------------


def _unrolled(program: Program, k: Kernel, form: Form, steps: int) -> Program | None:
    """``program`` with definitions in place of the recurrence ``k``; None where the invariants do not hold."""
    members = {b.name: b for b in program.buffers if b.name in form.roles}
    dims = {n: roles.index(form.step.var) for n, roles in form.roles.items() if form.step.var in roles}
    if len(dims) < len(members):
        return None
    updates = ((loops, s) for loops, s in statements(form.step.body) if isinstance(s, Update))
    sums = [(loops, s.value) for loops, s in updates if s.value.dtype.is_float]
    summed = {ld.buffer for loops, e in sums if _multiplies_matrices(form, loops, e) for ld in loads(e)}
    if any(b.name in summed and b.dtype.bytes < 4 for b in program.buffers):
        return None
    names = _names(program, members, dims)
    kernels: list[Kernel] = []
    for n in range(steps):
        for nest in nests(form.step.body):
            made = _definition(form, nest, n, dims, names)
            if made is None:
                return None
            kernels.append(_reading(made, dims, names))
    if any(ld.buffer in members for x in kernels for ld in _reads(x)):
        return None  # at a step that is no number, or that there is not
    written = {s.buffer for x in kernels for _, s in statements(x.body)}
    whole = _whole(program, k, form, steps)
    if any(names[name, n] not in written for name in whole for n in range(steps)):
        return None
    kernels += [_put_together(members[name], dims[name], [names[name, n] for n in range(steps)]) for name in whole]
    out = [x for o in program.kernels for x in (kernels if o is k else [_reading(o, dims, names)])]
    buffers = [b for b in program.buffers if b.name not in members or b.name in whole]
    for (name, _), new in names.items():
        if new in written:
            shape = tuple(e for d, e in enumerate(members[name].shape) if d != dims[name])
            buffers.append(Buffer(new, members[name].dtype, shape, Space.TEMP, members[name].span))
    return replace(program, buffers=tuple(buffers), kernels=tuple(out))


def _multiplies_matrices(form: Form, loops: Sequence[Loop], value: Expr) -> bool:
    """Whether two factors of the terms ``value`` of a sum inside of ``loops`` each have an axis of the result alone."""
    kept = {x.var for x in (*form.shared, *loops) if x.kind is not Kind.RED}
    own = [free_vars(f) & kept for f in factors(value)]
    return any(a - b and b - a for a, b in combinations(own, 2))


def _whole(program: Program, k: Kernel, form: Form, steps: int) -> list[str]:
    """The tensors of the recurrence ``k`` that are outputs, or that other kernels read at a step that is no number."""
    dims = {n: roles.index(form.step.var) for n, roles in form.roles.items() if form.step.var in roles}
    found = {b.name for b in program.buffers if b.name in dims and b.space is not Space.TEMP}
    for ld in (ld for x in program.kernels if x is not k for ld in _reads(x) if ld.buffer in dims):
        at = simplify(ld.index[dims[ld.buffer]])
        if not (isinstance(at, Const) and 0 <= at.value < steps):
            found.add(ld.buffer)
    return sorted(found)


def _put_together(b: Buffer, dim: int, steps: Sequence[str]) -> Kernel:
    """The kernel of ``b`` whose elements at each step along axis ``dim`` are those of a tensor of ``steps``."""
    axes = [f"i{n}" for n in range(len(b.shape))]
    index = tuple(Var(x, DType.I32) for x in axes)
    compute = b.dtype.compute
    elements: list[Expr] = []
    for name in steps:
        load = Load(name, _without(index, dim), b.dtype, b.span)
        elements.append(load if b.dtype is compute else Op("cast", (load,), compute))
    value = elements[-1]
    for n, element in reversed(list(enumerate(elements[:-1]))):
        value = Op("select", (calc("eq", index[dim], integer(n)), element, value), value.dtype)
    body: tuple[Stmt, ...] = (Store(b.name, index, value),)
    for x, size in reversed(list(zip(axes, b.shape, strict=True))):
        body = (Loop(x, integer(0), extent_expr(size), Kind.PAR, body),)
    return Kernel(b.name, (), body)


def _names(program: Program, members: Mapping[str, Buffer], dims: Mapping[str, int]) -> dict[tuple[str, int], str]:
    """The name of each tensor at each step."""
    taken = {b.name for b in program.buffers} | {k.name for k in program.kernels}
    names: dict[tuple[str, int], str] = {}
    for name, b in members.items():
        size = b.shape[dims[name]]
        for n in range(size if isinstance(size, int) else 0):
            new = f"{name}_{n}"
            while new in taken:
                new += "_"
            taken.add(new)
            names[name, n] = new
    return names


def _definition(
    form: Form, nest: tuple[Stmt, ...], n: int, dims: Mapping[str, int], names: Mapping[tuple[str, int], str]
) -> Kernel | None:
    """The kernel of ``nest`` in step ``n``; None where it writes at no number of a step."""
    body = substituted(nest, {form.step.var: integer(n)})
    for loop in reversed(form.shared):
        body = (replace(loop, body=body),)
    body = map_statements(body, lambda loops, s: simplify_statement(s, *loop_assumptions(loops)))

    def moved(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
        at = simplify(s.index[dims[s.buffer]])
        new = names.get((s.buffer, int(at.value))) if isinstance(at, Const) else None
        return s if new is None else replace(s, buffer=new, index=_without(s.index, dims[s.buffer]))

    body = _live(map_statements(body, moved))
    written = {s.buffer for _, s in statements(body)}
    return None if written & dims.keys() else Kernel(min(written), (), body)


def _live(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """``body`` without the statements that never run: a sum that a condition excludes keeps its initial value."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop):
            inner = _live(s.body)
            out += [s if inner == s.body else replace(s, body=inner)] if inner else []
        elif s.guard != FALSE:
            out.append(s)
    return tuple(out)


def _reading(k: Kernel, dims: Mapping[str, int], names: Mapping[tuple[str, int], str]) -> Kernel:
    """``k`` with its reads at numbers of steps from the tensors of these steps."""

    def read(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer not in dims:
            return None
        at = simplify(e.index[dims[e.buffer]])
        new = names.get((e.buffer, int(at.value))) if isinstance(at, Const) else None
        return None if new is None else replace(e, buffer=new, index=_without(e.index, dims[e.buffer]))

    def rule(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
        return with_expressions(s, lambda e: rewrite(e, read))

    return with_body(k, map_statements(k.body, rule))


def _without(index: tuple[Expr, ...], dim: int) -> tuple[Expr, ...]:
    return tuple(e for d, e in enumerate(index) if d != dim)


def _reads(k: Kernel) -> list[Load]:
    exprs = [e for _, s in statements(k.body) for e in (*s.index, s.value, *(() if s.guard is None else (s.guard,)))]
    return [ld for e in exprs for ld in loads(e)]
