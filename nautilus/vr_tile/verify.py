"""The verifier of the VR-tile IR: one rule function for each op class; an op without a rule is rejected.

:func:`verify` raises :class:`nautilus.core.errors.VerifyError` with the rule's name, the op and why.
The rules are those of the ``vr_tile.ir`` docstring, and two that it implies: both operands of ``dot``
have one element type, whose compute type is the result's; a later kernel may also load an output that
an earlier one stored, and a kernel loads what it stores itself only in a loop that stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, NoReturn

from nautilus.core.buffers import Buffer, Space
from nautilus.core.errors import VerifyError
from nautilus.core.expr.atomics import is_exact
from nautilus.core.expr.infer import DTypeError, reduce_dtype, result_dtype
from nautilus.core.expr.nodes import Expr, Load, Op, Param, Reduce, Ref, Var, free_vars, walk
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.text.names import repeated
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import INDEX_TYPES, DType
from nautilus.vr_tile.ir import (
    VR,
    ConstOp,
    DotOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    ParamOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    TileKernel,
    TileModule,
    TileOp,
    Value,
    operands,
    results,
    stored_by,
    walk_ops,
)
from nautilus.vr_tile.text import format_op

LEVEL = "vr-tile"


def verify(m: TileModule) -> None:
    """Raise VerifyError unless every rule of the level holds for ``m``."""
    names = [b.name for b in m.buffers] + [p.name for p in m.params]
    _unique("a name denotes one buffer or param", names, f"module {m.name}")
    _unique("a name denotes one kernel", [k.name for k in m.kernels], f"module {m.name}")
    for b in m.buffers:
        if b.space is Space.LOCAL:
            _fail("buffers are inputs, outputs and temps", b.name, "a module has no local buffer", b.span)
    written, read = set[str](), set[str]()
    for k in m.kernels:
        _Kernel(m, k, frozenset(written), frozenset(read)).check()
        written |= {op.buffer for op in walk_ops(k.body) if isinstance(op, StoreOp)}
        read |= {op.buffer for op in walk_ops(k.body) if isinstance(op, LoadOp)}


def _fail(rule: str, node: str, detail: str, span: Span = NO_SPAN) -> NoReturn:
    raise VerifyError(LEVEL, rule, node, detail, span)


def _unique(rule: str, names: Iterable[str], node: str) -> None:
    if (twice := repeated(names)) is not None:
        _fail(rule, node, f"{twice} occurs twice")


def union_axes(order: Mapping[str, int], types: Iterable[TileType]) -> tuple[TileAxis, ...]:
    """All axes of ``types``, once each, in the kernel's order."""
    found = {a.name: a for t in types for a in t.axes}
    return tuple(sorted(found.values(), key=lambda a: order[a.name]))


@dataclass
class _Kernel:
    """The scope of one kernel while its body is traversed."""

    module: TileModule
    kernel: TileKernel
    written: frozenset[str]  # by earlier kernels
    read: frozenset[str]  # by earlier kernels
    vars: set[str] = field(default_factory=set)
    values: dict[str, TileType] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    stepped: frozenset[str] = frozenset()  # what the loops around the op store
    order: dict[str, int] = field(default_factory=dict)
    op: TileOp | None = None

    def check(self) -> None:
        k = self.kernel
        _unique("a name denotes one variable", [g.var for g in k.grid] + [a.name for a in k.axes], f"kernel {k.name}")
        for a in k.axes:
            if a.size < 1:
                _fail("axes have elements", f"kernel {k.name}", f"{a.name} has size {a.size}", k.span)
        self.order = {a.name: i for i, a in enumerate(k.axes)}
        for self.op in walk_ops(k.body):
            self.need(type(self.op) in _RULES, "every op has a rule", f"{type(self.op).__name__} has none")
        self.stored = set(stored_by(k.body))
        for g in k.grid:
            self.expr(g.extent, TileType(DType.I32), "grid extents are integers of params", {DType.I32, DType.I64})
        self.vars = {g.var for g in k.grid}
        self.block(k.body)

    def fail(self, rule: str, detail: str) -> NoReturn:
        assert self.op is not None
        node = format_op(self.op) if type(self.op) in _RULES else repr(self.op)
        _fail(rule, node, detail, self.op.span)

    def need(self, ok: bool, rule: str, detail: str) -> None:
        if not ok:
            self.fail(rule, detail)

    def block(self, body: tuple[TileOp, ...]) -> None:
        chains: dict[str, list[ForOp]] = {}
        for op in body:
            self.op = op
            for v in operands(op):
                self.use(v)
            _RULES[type(op)](self, op)
            self.op = op
            if isinstance(op, ForOp) and op.chain is not None:
                earlier = chains.setdefault(op.chain, [])
                joined = not earlier or any(x.hi == op.lo or op.hi == x.lo for x in earlier)
                self.need(joined, "a chain visits adjoining ranges", f"chain {op.chain}")
                earlier.append(op)
            for r in results(op):
                self.define(r)

    def use(self, v: Value) -> None:
        have = self.values.get(v.name)
        self.need(have is not None, "defined before use", f"%{v.name} is not defined here")
        self.need(have == v.type, "a value has one type", f"%{v.name} was defined with another type")

    def define(self, v: Value) -> None:
        self.need(v.name not in self.defined, "one definition a value", f"%{v.name} is defined twice")
        sizes = {a.name: a.size for a in self.kernel.axes}
        for a in v.type.axes:
            self.need(a.name in sizes, "axes are declared", f"{a.name} is not an axis of the kernel")
            self.need(sizes[a.name] == a.size, "an axis has one size", f"{a.name} has size {sizes[a.name]}")
        ranks = [self.order[n] for n in v.type.names]
        self.need(ranks == sorted(set(ranks)), "axes in the kernel's order", ", ".join(v.type.names))
        self.defined.add(v.name)
        self.values[v.name] = v.type

    def same_in_a_block(self, load: Load) -> bool:
        """Whether ``load`` reads what stands there before the kernel, at variables of the grid and of loops."""
        before = (b for b in self.module.buffers if b.space is Space.INPUT or b.name in self.written)
        ranks = {b.name: len(b.shape) for b in before}
        return free_vars(load) <= self.vars and ranks.get(load.buffer) == len(load.index)

    def expr(
        self, e: Expr, t: TileType, rule: str, dtypes: set[DType] | frozenset[DType], *, reads: bool = False
    ) -> None:
        """``e`` has a type of ``dtypes`` and is made of variables, axes of ``t``, params and values.

        ``reads``: also of elements that are the same in a whole block.
        """
        where = f"kernel {self.kernel.name}"
        say: Callable[[str], NoReturn] = (
            (lambda d: self.fail(rule, d)) if self.op is not None else (lambda d: _fail(rule, where, d))
        )
        if e.dtype not in dtypes:
            say(f"an expression of type {e.dtype}")
        for node in walk(e):
            match node:
                case Load() if reads and self.same_in_a_block(node):
                    pass
                case Load() | Reduce():
                    say("a load or reduction inside an index")
                case Var(name=name):
                    if name not in self.vars and name not in t.names:
                        say(f"{name} is not a variable here, nor an axis of the tile")
                case Param(name=name):
                    if all(p.name != name for p in self.module.params):
                        say(f"no param {name}")
                case Ref(name=name, dtype=dtype):
                    own = self.values.get(name)
                    if own is None:
                        say(f"%{name} is not defined here")
                    if own.dtype is not dtype or not set(own.names) <= set(t.names):
                        say(f"%{name} has another type or more axes")
                case Op(op=op, args=args, dtype=dtype):
                    try:
                        if result_dtype(op, [a.dtype for a in args], dtype) is not dtype:
                            say(f"{op} gives another type than {dtype}")
                    except DTypeError as err:
                        say(str(err))

    def access(self, op: LoadOp | StoreOp, b: Buffer, t: TileType) -> None:
        found = f"{b.name} has {len(b.shape)}"
        self.need(len(op.index) == len(b.shape), "an access has one index for each dimension", found)
        for e in op.index:
            self.expr(e, t, "indices are integers in scope", INDEX_TYPES)
        if op.mask is not None:
            self.expr(op.mask, t, "masks are bool and in scope", {DType.BOOL})

    def buffer(self, name: str) -> Buffer:
        for b in self.module.buffers:
            if b.name == name:
                return b
        self.fail("buffers are declared", f"no buffer {name}")

    def union(self, types: Iterable[TileType]) -> tuple[TileAxis, ...]:
        return union_axes(self.order, types)


def _const(k: _Kernel, op: ConstOp) -> None:
    want: Any = bool if op.result.type.dtype is DType.BOOL else float if op.result.type.dtype.is_float else int
    k.need(type(op.value) is want, "constants have their type", f"{op.value!r} is not {op.result.type.dtype}")


def _index(k: _Kernel, op: IndexOp) -> None:
    k.expr(op.expr, op.result.type, "index values are integer or bool", INDEX_TYPES | {DType.BOOL})
    k.need(op.expr.dtype is op.result.type.dtype, "index values have their type", f"it is {op.expr.dtype}")


def _param(k: _Kernel, op: ParamOp) -> None:
    found = [p.dtype for p in k.module.params if p.name == op.param]
    k.need(bool(found), "params are declared", f"no param {op.param}")
    k.need(op.result.type == TileType(found[0]), "a param is one element of its type", str(found[0]))


def _load(k: _Kernel, op: LoadOp) -> None:
    b = k.buffer(op.buffer)
    readable = b.space in (Space.INPUT, Space.TEMP) or b.name in k.written or b.name in k.stepped
    complete = b.name not in k.stored or b.name in k.stepped
    k.need(readable and complete, "loads read what is complete", f"{b.name} is {b.space.value}")
    k.need(op.result.type.dtype is b.dtype, "loads give the storage type", f"{b.name} is {b.dtype}")
    k.access(op, b, op.result.type)


def _store(k: _Kernel, op: StoreOp) -> None:
    b = k.buffer(op.buffer)
    k.need(
        b.space in (Space.OUTPUT, Space.TEMP),
        "stores go to outputs and temps",
        f"{b.name} is {b.space.value}",
    )
    k.need(b.name not in k.read, "what was read is not overwritten", b.name)
    have = op.value.type.dtype
    k.need(have in (b.dtype, b.dtype.compute), "stores take the storage or compute type", f"{have} to {b.dtype}")
    k.access(op, b, op.value.type)
    used = {v.name for e in op.index for v in walk(e) if isinstance(v, Var)}
    used |= {n for e in op.index for v in walk(e) if isinstance(v, Ref) for n in k.values[v.name].names}
    idle = [n for n in op.value.type.names if n not in used]
    if op.combiner is not None:
        k.need(b.name in k.written, "an atomic store combines into what an earlier kernel stored", b.name)
        k.need(have is b.dtype, "an atomic store takes the type of the buffer", str(have))
        k.need(is_exact(op.combiner, have), "an atomic store does not depend on the order", f"{op.combiner} of {have}")
        return
    k.need(not idle, "stores write each element once", f"{', '.join(idle)} is in no index")


def _map(k: _Kernel, op: MapOp) -> None:
    t = op.result.type
    try:
        want = result_dtype(op.op, [a.type.dtype for a in op.args], t.dtype)
    except DTypeError as err:
        k.fail("elementwise types", str(err))
    k.need(want is t.dtype, "elementwise types", f"{op.op} gives {want}")
    k.need(t.axes == k.union(a.type for a in op.args), "elementwise axes are the operands' union", str(t.names))


def _combined_type(k: _Kernel, op: ReduceOp | ScanOp, rule: str) -> None:
    """The element type of the result is that of the combiner on the argument's; ``rule``: the name of the invariant."""
    try:
        want = reduce_dtype(op.combiner, op.arg.type.dtype)
    except DTypeError as err:
        k.fail(rule, str(err))
    k.need(want is op.result.type.dtype, rule, f"{op.combiner} gives {want}")


def _reduce(k: _Kernel, op: ReduceOp) -> None:
    t, arg = op.result.type, op.arg.type
    _combined_type(k, op, "reduction types")
    inside = bool(op.axes) and len(set(op.axes)) == len(op.axes) and set(op.axes) <= set(arg.names)
    k.need(inside, "reduced axes are the operand's", ", ".join(op.axes))
    rest = tuple(a for a in arg.axes if a.name not in op.axes)
    k.need(t.axes == rest, "a reduction removes its axes", ", ".join(t.names))


def _scan(k: _Kernel, op: ScanOp) -> None:
    t, arg = op.result.type, op.arg.type
    _combined_type(k, op, "scan types")
    sizes = dict(zip((*arg.names, *t.names), (*arg.shape, *t.shape), strict=True))
    named = op.axis in arg.names and op.into in t.names and (op.into not in arg.names or op.into == op.axis)
    k.need(named and sizes[op.axis] == sizes[op.into], "a scan leads to an axis of one size", op.into)
    if op.by is not None:
        factors = op.by.type
        plain = op.combiner == "sum" and op.axis == op.into and not op.exclusive
        k.need(plain, "a scan with factors is an inclusive sum along one axis", op.into)
        fits = factors.dtype is t.dtype and set(factors.names) <= set(arg.names)
        k.need(fits, "factors have the type of a scan and its axes", f"%{op.by.name}")
    if op.states is not None:
        _states(k, op, sizes)
    rest = {a.name for a in arg.axes} - {op.axis} | {op.into}
    k.need(t.names == tuple(a for a in k.order if a in rest), "a scan keeps the other axes", ", ".join(t.names))


def _states(k: _Kernel, op: ScanOp, sizes: Mapping[str, int]) -> None:
    """States that need each other are elements along an axis of their own, which factors do not have."""
    t, arg, axis = op.result.type, op.arg.type, op.states
    plain = op.combiner == "sum" and op.axis == op.into and not op.exclusive and op.by is None and t.dtype.is_float
    k.need(plain, "a scan of states is an inclusive sum of floats along one axis", op.into)
    k.need(axis in arg.names and axis != op.axis, "a scan of states has an axis of states", str(axis))
    rest = set(arg.names) - {axis}
    fits = all(f.type.dtype is t.dtype and set(f.type.names) <= rest for f in op.factors)
    k.need(fits, "factors have the type of a scan and its axes", ", ".join(f"%{f.name}" for f in op.factors))
    places = len(op.places) == len(op.factors) and list(op.places) == sorted(set(op.places))
    inside = bool(op.places) and op.places[0] >= 0 and op.places[-1] < sizes[axis or ""] ** 2
    k.need(places and inside, "each factor has a place in the matrix, in order", ", ".join(map(str, op.places)))


def _dot(k: _Kernel, op: DotOp) -> None:
    t, a, b = op.result.type, op.a.type, op.b.type
    over = set(op.axes)
    k.need(bool(over) and len(over) == len(op.axes), "a dot contracts axes", ", ".join(op.axes))
    k.need(over <= set(a.names) & set(b.names), "contracted axes are in both operands", ", ".join(op.axes))
    rest = tuple(x for x in k.union((a, b)) if x.name not in over)
    sizes = {x.name: x.size for x in a.axes}
    k.need(
        op.terms is None or (len(over) == 1 and 0 < op.terms < sizes[op.axes[0]]),
        "terms of a dot are fewer than the positions of its only axis",
        str(op.terms),
    )
    k.need(t.axes == rest, "a dot keeps all other axes", ", ".join(t.names))
    k.need(a.dtype is b.dtype, "one element type for both operands", f"{a.dtype} and {b.dtype}")
    k.need(
        t.dtype in (a.dtype.compute, DType.I64 if a.dtype.is_int else None) and a.dtype is not DType.BOOL,
        "dot accumulates in the compute type, or integers in i64",
        str(t.dtype),
    )
    k.need(op.acc is None or op.acc.type == t, "the accumulator has the result's type", "")
    if op.mask is not None:
        inside = set(op.mask.type.names) <= set(a.names) | set(b.names)
        k.need(op.mask.type.dtype is DType.BOOL and inside, "a dot's mask is bool over axes of its operands", "")
    parted = op.parts is None or (op.parts in (2, 3) and a.dtype is DType.F32)
    k.need(parted, "an operand of f32 has two or three parts", f"{op.parts} parts of {a.dtype}")


def _for(k: _Kernel, op: ForOp) -> None:
    for e in (op.lo, op.hi):
        k.expr(e, TileType(DType.I32), "loop bounds are integers in scope", INDEX_TYPES, reads=True)
    taken = op.var in k.vars or op.var in k.order
    k.need(not taken, "a name denotes one variable", f"{op.var} is taken")
    k.need(len(op.results) == len(op.carried) == len(op.yields), "as many results as carried", "")
    for r, (arg, init), y in zip(op.results, op.carried, op.yields, strict=True):
        same = r.type == arg.type == init.type == y.type
        k.need(same, "carried types are constant", f"%{arg.name}")
    outer = dict(k.values)
    k.vars.add(op.var)
    for arg, _ in op.carried:
        k.define(arg)
    outside, k.stepped = k.stepped, k.stepped | stored_by(op.body)
    k.block(op.body)
    k.op, k.stepped = op, outside
    for y in op.yields:
        k.use(y)
    k.vars.discard(op.var)
    k.values = outer


_RULES: Mapping[type, Callable[[_Kernel, Any], None]] = {
    ConstOp: _const,
    IndexOp: _index,
    ParamOp: _param,
    LoadOp: _load,
    StoreOp: _store,
    MapOp: _map,
    ReduceOp: _reduce,
    ScanOp: _scan,
    DotOp: _dot,
    ForOp: _for,
}
VR.complete(_RULES, "verifier rules")
