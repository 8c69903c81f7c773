"""Short constructors for Scalar programs in the state in which fusion sees them."""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, identity
from nautilus.core.types import DType
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update

Extent = int | Param
Axes = Mapping[str, Extent]

F32, F16, I32, BOOL = DType.F32, DType.F16, DType.I32, DType.BOOL


def i(value: int) -> Const:
    return Const(value, I32)


def f(value: float) -> Const:
    return Const(float(value), F32)


def v(name: str) -> Var:
    return Var(name)


def op(name: str, *args: Expr) -> Op:
    """An operation; comparisons and logic give bool."""
    logic = name in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")
    return Op(name, args, BOOL if logic else args[-1].dtype)


class Builder:
    """Collects buffers and kernels; ``par`` names give axes with their extents."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.buffers: dict[str, Buffer] = {}
        self.kernels: list[Kernel] = []

    def input(self, name: str, *shape: Extent, dtype: DType = F16) -> None:
        self.buffers[name] = Buffer(name, dtype, shape, Space.INPUT)

    def at(self, name: str, *index: str | Expr) -> Expr:
        """A load in its compute type."""
        b = self.buffers[name]
        ld = Load(name, tuple(Var(x) if isinstance(x, str) else x for x in index), b.dtype)
        return ld if b.dtype is b.dtype.compute else Op("cast", (ld,), b.dtype.compute)

    def _loops(self, axes: Axes, kind: Kind, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        for name, extent in reversed(list(axes.items())):
            body = (Loop(name, i(0), i(extent) if isinstance(extent, int) else extent, kind, body),)
        return body

    def define(self, name: str, par: Axes, value: Expr, *, out: DType | None = None, guard: Expr | None = None) -> None:
        """An elementwise definition; ``out`` makes it an output of that type."""
        space = Space.TEMP if out is None else Space.OUTPUT
        self.buffers[name] = Buffer(name, out or value.dtype, tuple(par.values()), space)
        store = Store(name, tuple(Var(a) for a in par), value, guard)
        self.kernels.append(Kernel(name, (), self._loops(par, Kind.PAR, (store,))))

    def reduce(
        self, name: str, par: Axes, red: Axes, op: str, value: Expr,
        guard: Expr | None = None, *, out: bool = False,
    ) -> None:  # fmt: skip
        """A reduction of ``value`` over ``red``."""
        space = Space.OUTPUT if out else Space.TEMP
        self.buffers[name] = Buffer(name, value.dtype, tuple(par.values()), space)
        index = tuple(Var(a) for a in par)
        update = Update(name, op, index, value, guard)
        body = (Store(name, index, identity(op, value.dtype)), *self._loops(red, Kind.RED, (update,)))
        self.kernels.append(Kernel(name, (), self._loops(par, Kind.PAR, body)))

    def program(self) -> Program:
        order = {Space.INPUT: 0, Space.OUTPUT: 1, Space.TEMP: 2}
        buffers = tuple(sorted(self.buffers.values(), key=lambda b: order[b.space]))
        sizes = {n for b in buffers for n in b.shape if isinstance(n, Param)}
        params = tuple(ScalarParam(n.name, I32) for n in sorted(sizes, key=lambda n: n.name))
        return Program(self.name, buffers, params, tuple(self.kernels))


def attention(
    m: int, n: int, d: int, *, heads: int = 2, groups: int = 2, guard: Expr | None = None, safe: bool = True
) -> Program:
    """Attention after ``factor`` and ``narrow``; ``guard`` over i and j."""
    b = Builder("attention")
    b.input("Q", 1, heads, m, d)
    b.input("K", 1, heads // groups, n, d)
    b.input("V", 1, heads // groups, n, d)
    rows: Axes = {"b": 1, "h": heads, "i": m}
    h = op("floordiv", v("h"), i(groups))
    product = op("mul", b.at("Q", "b", "h", "i", "d"), b.at("K", "b", h, "j", "d"))
    b.reduce("S_sum", {**rows, "j": n}, {"d": d}, "sum", product)
    s = op("mul", b.at("S_sum", "b", "h", "i", "j"), f(d**-0.5))
    b.reduce("P_max", rows, {"j": n}, "max", s, guard)
    p = op("exp", op("sub", s, b.at("P_max", "b", "h", "i")))
    b.reduce("P_sum", rows, {"j": n}, "sum", p, guard)
    w = Op("cast", (Op("narrow", (p,), F16),), F32)
    b.reduce("O_acc", {**rows, "d": d}, {"j": n}, "sum", op("mul", w, b.at("V", "b", h, "j", "d")), guard)
    total = b.at("P_sum", "b", "h", "i")
    out: Expr = op("div", b.at("O_acc", "b", "h", "i", "d"), total)
    if safe:
        out = op("select", op("eq", total, f(0)), f(0), out)
    b.define("O", {**rows, "d": d}, out, out=F16)
    return b.program()


def causal(offset: int = 0) -> Expr:
    return op("le", op("sub", v("j"), v("i")), i(offset))


def window(size: int) -> Expr:
    return op("and", causal(), op("lt", op("sub", v("i"), v("j")), i(size)))
