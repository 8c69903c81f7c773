"""Emission of VR-tile ops from scalar expressions, the part of the lowering that is independent of statements.

:class:`Builder` contains one kernel's tile axes, the values of its locals, the assumptions about its variables, and
the block under construction.  Its rules:

* The largest integer or bool sub-expressions without a load become one ``index`` op each.
* The mask of a load is its bounds check, without the conjuncts that interval analysis proves.  If a guard (or the
  condition of a lazy ``select``) makes a scalar load legal, it implies the mask, so every value that is used is right.
  Where the guard is false, the mask prevents reads outside the buffer for any index (also of a gather through a padded
  table), and the element is 0.
* A load inside an index or a mask becomes a value and a ``Ref`` to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nautilus.core.buffers import Buffer
from nautilus.core.errors import InternalError
from nautilus.core.expr.build import within
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Ref, Var, free_vars, refs
from nautilus.core.index.linear import first_positions
from nautilus.core.index.simplify import TRUE
from nautilus.core.source import Span
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.vr_tile.analysis.assumptions import Assumptions
from nautilus.vr_tile.ir import IndexOp, LoadOp, ParamOp, Value
from nautilus.vr_tile.lowering.emitter import Emitter

_INTEGERS = 2**24  #: f32 has all integers up to here


class Builder(Emitter):
    """State of the lowering of one kernel. ``axes``: tile axes by name, in canonical order, none of size 1."""

    def __init__(self, axes: Mapping[str, TileAxis], buffers: Mapping[str, Buffer]) -> None:
        super().__init__(axes)
        self.buffers = buffers
        self.env: dict[str, Value] = {}
        self.assumptions = Assumptions.of_axes(axes.values())
        self._memo: dict[int, tuple[Expr, Value]] = {}
        self._pure: dict[int, tuple[Expr, bool]] = {}

    def statement(self, span: Span) -> None:
        """Begin a statement. Locals may have changed, so the caches are cleared."""
        self._memo.clear()
        self._pure.clear()
        self.span = span

    def names(self, e: Expr) -> frozenset[str]:
        """The tile axes among the variables of scalar expression ``e``."""
        return free_vars(e) & self.axes.keys()

    def known(self, e: Expr) -> Expr:
        """``e`` simplified under the current assumptions about its variables."""
        return self.assumptions.simple(e)

    # -- expressions --------------------------------------------------------------------------
    def is_index(self, e: Expr) -> bool:
        """Whether ``e`` is an integer or bool function of variables and sizes alone."""
        found = self._pure.get(id(e))
        if found is None:
            found = (e, self._is_index(e))
            self._pure[id(e)] = found
        return found[1]

    def _is_index(self, e: Expr) -> bool:
        whole = e.dtype in (DType.I32, DType.I64, DType.BOOL)
        match e:
            case Const() | Var() | Param():
                return whole
            case Op(args=args):
                return whole and all(self.is_index(a) for a in args)
        return False

    def value(self, e: Expr) -> Value:
        """The tile of scalar expression ``e``, over the tile variables in it."""
        found = self._memo.get(id(e))
        if found is None:
            found = (e, self._value(e))
            self._memo[id(e)] = found
        return found[1]

    def _value(self, e: Expr) -> Value:
        if self.is_index(e):
            e = self.known(e)
        match e:
            case Const(value=value, dtype=dtype):
                return self.const(value, TileType(dtype))
            case _ if self.is_index(e):
                v = self.fresh(self.type(e.dtype, self.names(e)))
                self.emit(IndexOp(v, e, self.span))
                return v
            case Param(name=name, dtype=dtype):
                v = self.fresh(TileType(dtype), name)
                self.emit(ParamOp(v, name, self.span))
                return v
            case Load(buffer=buffer) if buffer in self.buffers:
                return self.load(e)
            case Load(buffer=buffer):
                return self.local(buffer)
            case Op(op="cast", args=(Const(value=value),), dtype=dtype) if dtype in (DType.F32, DType.F64):
                return self.const(float(value), TileType(dtype))
            case Op(op="cast", args=(a,), dtype=DType.BF16 | DType.TF32 as dtype) if self.is_exact_in_f32(a):
                return self.map("cast", [self.map("cast", [self.value(a)], DType.F32)], dtype)
            case Op(op=op, args=args, dtype=dtype):
                return self.map(op, [self.value(a) for a in args], dtype)
        raise InternalError(f"no VR-tile form of {e!r}")

    def is_exact_in_f32(self, e: Expr) -> bool:
        """Whether f32 has all values of the i32 ``e``: a conversion by way of it rounds once, and costs less."""
        return e.dtype is DType.I32 and max(map(abs, Ranges({}, ()).of(e))) <= _INTEGERS

    def local(self, name: str) -> Value:
        """The value of local ``name``. Raises InternalError before its first store."""
        if name not in self.env:
            raise InternalError(f"local {name} is read before it is written")
        return self.env[name]

    def index(self, e: Expr) -> Expr:
        """``e`` as an index expression; a sub-expression that is not one becomes a value and a Ref."""
        return self.known(self._index(e))

    def _index(self, e: Expr) -> Expr:
        if self.is_index(e):
            return e
        kept = (DType.I32, DType.I64, DType.BOOL)
        if isinstance(e, Op) and e.dtype in kept and all(a.dtype in kept for a in e.args):
            return Op(e.op, tuple(self._index(a) for a in e.args), e.dtype)
        v = self.value(e)
        return Ref(v.name, v.type.dtype)

    def index_names(self, e: Expr) -> frozenset[str]:
        """The tile axes of an index expression, including those of its Refs."""
        return self.names(e) | {n for r in refs(e) for n in self.types[r].names}

    def bounds_check(self, b: Buffer, index: Sequence[Expr]) -> list[Expr]:
        """The conditions that ``index`` is inside ``b``, without those that always hold."""
        parts: list[Expr] = []
        for e, size in zip(index, b.shape, strict=True):
            parts += [p for p in map(self.known, within(e, size)) if p != TRUE]
        return parts

    def nonzero(self, b: Buffer, index: Sequence[Expr]) -> list[Expr]:
        """The conditions without which a load of ``b[index]`` gives 0: its bounds check, and the buffer's support."""
        support = b.supported(index)
        more = () if support is None else (c for c in map(self.known, conjuncts(support)) if c != TRUE)
        return [*self.bounds_check(b, index), *more]

    def terms(self, axes: frozenset[str], guard: Iterable[Expr], sides: Iterable[Expr]) -> int | None:
        """The terms along the only one of ``axes`` after which a conjunct of ``guard`` is false, which needs no mask
        because one of ``sides`` is an element of a buffer that is 0 there; None where there is no such conjunct."""
        stored = [e for e in sides if isinstance(e, Load) and e.buffer in self.buffers]
        zeros = {c for e in stored for c in conjuncts(self.buffers[e.buffer].supported(e.index) or TRUE)}
        found = [n for x in axes for c in guard if c in zeros and (n := first_positions(c, x)) is not None]
        return min(found) if found and len(axes) == 1 else None

    def implied(self, cond: Expr, by: Sequence[Expr]) -> bool:
        """Whether ``cond`` holds wherever every expression of ``by`` holds, or is one of them."""
        return self.known(cond) in (TRUE, *map(self.known, by)) or self.assumptions.implied(cond, by)

    def load(self, e: Load, extra: Sequence[Expr] = ()) -> Value:
        """A load masked by its bounds check and by ``extra`` (index expressions over the load's axes)."""
        b = self.buffers[e.buffer]
        index = tuple(self.index(i) for i in e.index)
        mask = self.known(conjunction([*self.bounds_check(b, index), *extra]) or TRUE)
        names = frozenset[str]().union(*(self.index_names(i) for i in (*index, mask)))
        v = self.fresh(self.type(b.dtype, names), e.buffer.lower() + "_tile")
        self.emit(LoadOp(v, e.buffer, index, None if mask == TRUE else mask, self.span))
        return v
