"""Scalar expressions, shared by the Spec, the Scalar IR and the index positions below them.

Grammar (the text form is printed and parsed by ``core.text.expressions``)::

    expr := const | var | param | load | op(expr...) | reduce        -- reduce: Spec only
    const  := number of a compute type
    var    := an index variable, a loop variable or a tile axis; an integer
    param  := a ``scalar`` argument, or a size known only at launch
    load   := buffer[expr, ...]                    -- the element at an index
    ref    := %name                                -- VR-tile only: an SSA value in an index
    reduce := OP[axis: extent, ... | cond](body)

Invariants (checked where an IR holds them, by the verifiers of the levels):

* every node carries its type; the arguments of an arithmetic ``Op`` have one compute type and
  conversions are explicit ``cast`` nodes (a storage-typed ``Load`` stands under a ``cast``);
* comparisons give ``bool``; ``select(cond, a, b)`` evaluates lazily: the branch that is not selected may read
  outside a tensor, because it is not evaluated;
* nodes are immutable, compare structurally and ignore their spans, so rewrites may share them.

``cast`` always rounds (the user wrote it, or it widens and is exact).  ``narrow`` is a rounding
that the numeric contract *permits* and the compiler inserted: an interpreter that works over the
reals skips it, so no tolerance for legal narrowing hides a wrong rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from math import copysign
from typing import TypeAlias, TypeVar

from nautilus.core.functions import FUNCTIONS, Types
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Source, Span
from nautilus.core.types import DType, integer_limits

T = TypeVar("T")
SPAN = field(default=NO_SPAN, compare=False, repr=False)


class _Nested:
    """An expression with sub-expressions.  It stores what would otherwise be found by traversing all of them again and
    again: its hash, its loads, its free variables, the facts about its sizes, its details, its text, its linear form.

    These are no fields of the dataclass, so a copy does not have them, and they are not pickled.
    """

    __slots__ = ("_details", "_equals", "_free", "_hash", "_linear", "_loads", "_refs", "_sizes", "_text")
    _details: tuple[object, ...]
    _equals: object
    _free: frozenset[str]
    _hash: int
    _linear: object
    _loads: tuple[Load, ...]
    _refs: frozenset[str]
    _sizes: tuple[tuple[str, object], ...]
    _text: str

    def _keep_hash(self, found: int) -> int:
        object.__setattr__(self, "_hash", found)
        return found


def _note_equal(a: Op, b: Op, known: object) -> None:
    """Let two equal operations refer to one object, so that their next comparison is one of identity."""
    if known is None:
        known = getattr(b, "_equals", None) or object()
        object.__setattr__(a, "_equals", known)
    object.__setattr__(b, "_equals", known)


@dataclass(frozen=True, slots=True)
class Const:
    """A literal. ``value`` is int for integer types, bool for bool, float otherwise."""

    value: int | float | bool
    dtype: DType
    span: Span = SPAN

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not Const:
            return self is other
        return (self.value is other.value or self.value == other.value) and self.dtype is other.dtype

    def __hash__(self) -> int:
        return hash((self.value, self.dtype))


@dataclass(frozen=True, slots=True)
class Var:
    """An integer index variable, loop variable or tile axis."""

    name: str
    dtype: DType = DType.I32
    span: Span = SPAN

    def __eq__(self, other: object) -> bool:
        return type(other) is Var and self.name == other.name and self.dtype is other.dtype

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Param:
    """A scalar argument of the kernel (``scalar eps: f32``) or a runtime size.

    ``most``: the largest value of a runtime size; None: a scalar, with any value of its type.  A runtime size is at
    least ``least`` and a multiple of ``multiple``.  ``device``: kernels read the size in the memory of the device.
    ``default``: the value of an integer scalar for which none is given, which costs are estimated with.
    """

    name: str
    dtype: DType
    span: Span = SPAN
    most: int | None = field(default=None, compare=False, repr=False)
    least: int = field(default=0, compare=False, repr=False)
    multiple: int = field(default=1, compare=False, repr=False)
    device: bool = field(default=False, compare=False, repr=False)
    default: int | None = field(default=None, compare=False, repr=False)

    @property
    def range(self) -> tuple[int | None, int | None]:
        """The values of a runtime size, inclusive; unknown for a scalar."""
        return (None, None) if self.most is None else (self.least, self.most)


@dataclass(frozen=True, slots=True)
class Load(_Nested):
    """The element of ``buffer`` at ``index``; its type is the buffer's storage type."""

    buffer: str
    index: tuple[Expr, ...]
    dtype: DType
    span: Span = SPAN

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not Load:
            return self is other
        return self.buffer == other.buffer and self.dtype is other.dtype and self.index == other.index

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            return self._keep_hash(hash((self.buffer, self.index, self.dtype)))


@dataclass(frozen=True, slots=True)
class Op(_Nested):
    """A function of ``core.functions`` applied to its arguments."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType
    span: Span = SPAN

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not Op:
            return self is other
        if self.op != other.op or self.dtype is not other.dtype:
            return False
        known = getattr(self, "_equals", None)
        if known is not None and known is getattr(other, "_equals", None):
            return True
        if self.args != other.args:
            return False
        _note_equal(self, other, known)
        return True

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            return self._keep_hash(hash((self.op, self.args, self.dtype)))


@dataclass(frozen=True, slots=True)
class Axis:
    """A bound index variable and its extent: ``0 <= name < extent``.

    The extent is an int or a runtime Param; from Scalar IR on also an expression over Params, such as a number of
    chunks.
    """

    name: str
    extent: int | Expr
    span: Span = SPAN


@dataclass(frozen=True, slots=True)
class Reduce(_Nested):
    """``op`` over ``axes`` of ``body`` where ``cond`` holds (None: everywhere). Spec level only."""

    op: str
    axes: tuple[Axis, ...]
    cond: Expr | None
    body: Expr
    dtype: DType
    span: Span = SPAN

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            return self._keep_hash(hash((self.op, self.axes, self.cond, self.body, self.dtype)))


@dataclass(frozen=True, slots=True)
class Ref:
    """An SSA value used inside an index or a mask (VR-tile level and below)."""

    name: str
    dtype: DType
    span: Span = SPAN


Expr: TypeAlias = Const | Var | Param | Load | Op | Reduce | Ref
_INNER: frozenset[type] = frozenset((Load, Op, Reduce))  # those that have parts

#: name -> number of arguments.
OPS: Mapping[str, int] = {f.name: f.arity for f in FUNCTIONS.values()}
COMPARISONS = frozenset(f.name for f in FUNCTIONS.values() if f.types is Types.COMPARISON)
RELATIONAL = frozenset({"lt", "le", "gt", "ge"})  # of these, what depends on the sign of a difference
NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}  # on integers only: NaN is unordered


@dataclass(frozen=True, slots=True)
class Combiner:
    """A reduction's associative, commutative operation (``sum``) as a binary op and identity.

    ``identity`` holds for real arithmetic; :func:`identity` gives it in a type.
    """

    name: str
    binary: str


COMBINERS: Mapping[str, Combiner] = {
    "sum": Combiner("sum", "add"),
    "prod": Combiner("prod", "mul"),
    "max": Combiner("max", "max"),
    "min": Combiner("min", "min"),
    "any": Combiner("any", "or"),
    "all": Combiner("all", "and"),
}

_NO_NAMES: frozenset[str] = frozenset()


def identity(op: str, dtype: DType) -> Const:
    """The identity of combiner ``op`` in compute type ``dtype`` (``max`` of i32: the least i32). Raises KeyError."""
    match op:
        case "sum":
            return Const(0 if dtype.is_int else 0.0, dtype)
        case "prod":
            return Const(1 if dtype.is_int else 1.0, dtype)
        case "any" | "all":
            return Const(op == "all", DType.BOOL)
        case "max" | "min":
            if dtype is DType.BOOL:
                return Const(op == "min", dtype)
            if dtype.is_float:
                return Const(float("-inf") if op == "max" else float("inf"), dtype)
            low, high = integer_limits(dtype)
            return Const(low if op == "max" else high, dtype)
    raise KeyError(op)


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions of ``e`` (a Reduce yields its condition, if any, and its body)."""
    kind = type(e)  # comparing types is three times as fast as matching classes, and this runs a million times
    if kind is Op:
        return e.args  # type: ignore[union-attr]
    if kind is Load:
        return e.index  # type: ignore[union-attr]
    if kind is Reduce:
        return (e.body,) if e.cond is None else (e.cond, e.body)  # type: ignore[union-attr]
    return ()


def with_children(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """``e`` with its direct sub-expressions replaced by ``new``; ``e`` itself if they are the same."""
    for a, b in zip(children(e), new, strict=True):
        if a is not b:
            return _rebuilt(e, new)
    return e


def _rebuilt(e: Expr, new: tuple[Expr, ...]) -> Expr:
    kind = type(e)
    if kind is Op:
        return Op(e.op, new, e.dtype, e.span)  # type: ignore[union-attr]
    if kind is Load:
        return Load(e.buffer, new, e.dtype, e.span)  # type: ignore[union-attr]
    assert isinstance(e, Reduce)
    return replace(e, cond=new[0] if len(new) == 2 else None, body=new[-1])


def walk(e: Expr) -> Iterator[Expr]:
    """Every distinct node object of ``e``, parents before children; shared nodes once."""
    if not children(e):
        yield e
        return
    seen: set[int] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        at = id(node)
        if at in seen:
            continue
        seen.add(at)
        yield node
        kind = type(node)  # not by a call of children: this runs more often than anything else
        if kind is Op:
            stack += node.args[::-1]  # type: ignore[union-attr]
        elif kind is Load or kind is Reduce:
            stack += children(node)[::-1]


def details(e: Expr) -> tuple[object, ...]:
    """What equal expressions may differ in: their spans, facts about sizes, and the sign of zero."""
    if not isinstance(e, _Nested):
        return _details(e)
    try:
        return e._details
    except AttributeError:
        found = _details(e)
        object.__setattr__(e, "_details", found)
        return found


def _details(e: Expr) -> tuple[object, ...]:
    out: list[object] = []
    source: Source | None = None
    for n in walk(e):
        for at in (n.span, *(a.span for a in n.axes)) if isinstance(n, Reduce) else (n.span,):
            if at.source is not source:
                out.append(source := at.source)
            out += (at.line, at.column, at.end_line, at.end_column)
        if isinstance(n, Param):
            out += _facts(n)
        elif isinstance(n, Reduce):
            late = (e for a in n.axes if not isinstance(a.extent, int) for e in walk(a.extent))
            out += (_facts(e) for e in late if isinstance(e, Param))
        elif isinstance(n, Const) and not n.value:
            out.append(copysign(1.0, n.value))
    return tuple(out)


def _facts(p: Param) -> tuple[object, ...]:
    return p.most, p.least, p.multiple, p.device, p.default


def sizes(e: Expr) -> tuple[tuple[str, object], ...]:
    """The names of the params in ``e``, with the facts about them, in which equal expressions may differ."""
    if not isinstance(e, _Nested):
        return ((e.name, _facts(e)),) if isinstance(e, Param) else ()
    try:
        return e._sizes
    except AttributeError:
        found = _merged([sizes(c) for c in children(e) if type(c) in _INNER or type(c) is Param])
        object.__setattr__(e, "_sizes", found)
        return found


def _merged(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    """The items of all ``parts`` in order, each once."""
    some = [p for p in parts if p]
    if len(some) < 2:
        return some[0] if some else ()
    return tuple(dict.fromkeys(x for p in some for x in p))


def _united(parts: Iterable[frozenset[str]]) -> frozenset[str]:
    """The names in any of ``parts``; one of these where it has all."""
    found = _NO_NAMES
    for names in parts:
        if not names <= found:
            found = names if found <= names else found | names
    return found


def rewrite(e: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild ``e`` bottom-up (iteratively, sharing kept); ``rule`` gives a node's replacement or None."""
    if not children(e):
        return rule(e) or e
    done: dict[int, Expr] = {}
    stack = [e]
    pop, push = stack.pop, stack.append
    while stack:
        node = stack[-1]
        if id(node) in done:
            pop()
            continue
        built, first = node, len(stack)
        kids = node.args if type(node) is Op else children(node)
        for k in kids:
            at = id(k)
            if at not in done:
                kind = type(k)
                if k.args if kind is Op else kind in _INNER and children(k):  # type: ignore[union-attr]
                    push(k)
                else:  # at once: most nodes are numbers and variables
                    done[at] = rule(k) or k
        if len(stack) > first:
            continue
        for k in kids:
            if done[id(k)] is not k:
                built = _rebuilt(node, tuple([done[id(k)] for k in kids]))
                break
        pop()
        new = rule(built)
        done[id(node)] = built if new is None else new
    return done[id(e)]


def replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    """``e`` with ``new`` in the place of each part that equals ``old``."""
    return rewrite(e, lambda n: new if n == old else None)


def substitute(e: Expr, env: Mapping[str, Expr]) -> Expr:
    """Replace index variables by name. Bound names of a Reduce must not occur in ``env``."""
    names = env.keys()
    if names.isdisjoint(free_vars(e)):
        return e
    done: dict[int, Expr] = {}

    def new(n: Expr) -> Expr:
        if type(n) is Var:
            return env.get(n.name, n)
        if names.isdisjoint(free_vars(n)):
            return n
        found = done.get(id(n))
        if found is None:
            found = done[id(n)] = with_children(n, tuple([new(c) for c in children(n)]))
        return found

    return new(e)


def free_vars(e: Expr) -> frozenset[str]:
    """Names of the index variables that occur in ``e`` and are not bound by a Reduce inside it."""
    if not isinstance(e, _Nested):
        return frozenset((e.name,)) if isinstance(e, Var) else _NO_NAMES
    try:
        return e._free
    except AttributeError:
        found = _free_vars(e)
        object.__setattr__(e, "_free", found)
        return found


def _free_vars(e: Expr) -> frozenset[str]:
    inner = _united([free_vars(c) for c in children(e) if type(c) in _INNER or type(c) is Var])
    return inner - {a.name for a in e.axes} if isinstance(e, Reduce) else inner


def refs(e: Expr) -> frozenset[str]:
    """Names of the tile values that occur in ``e``."""
    if not isinstance(e, _Nested):
        return frozenset((e.name,)) if isinstance(e, Ref) else _NO_NAMES
    try:
        return e._refs
    except AttributeError:
        found = _united([refs(c) for c in children(e) if type(c) in _INNER or type(c) is Ref])
        object.__setattr__(e, "_refs", found)
        return found


def loads(e: Expr) -> tuple[Load, ...]:
    """Every distinct load in ``e``, in order of first occurrence."""
    if not isinstance(e, _Nested):
        return ()
    try:
        return e._loads
    except AttributeError:
        inner = _merged([loads(c) for c in children(e) if type(c) in _INNER])
        found = (e, *inner) if isinstance(e, Load) else inner
        object.__setattr__(e, "_loads", found)
        return found
