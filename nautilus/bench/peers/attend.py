"""Recognition of specs that a fused attention call computes, by their algebra.

An output with everything inlined must be ``sum[j](softmax[j | C](X) * V)``, where ``V`` reads an input.  The scores
``X`` contain one contraction of two inputs: the queries, which have the row's index, and the keys, which have ``j``.
The expression around the contraction is the *score function*, and ``C`` is the *mask*.  Both may be any expression of
indices and small inputs, such as a slope for each head.  Library calls need [batch, head, row, inner]; other index
orders become views, and ``h // G`` becomes a group of heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nautilus.bench.contenders import NotApplicable
from nautilus.bench.peers.algebra import SIZE, Found, inlined, strip_casts, template, unify
from nautilus.bench.peers.text import number, operation
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Var, free_vars, replaced, walk
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.frontend.spec import Spec

SCORE = "%score"
_HEAD = f"""dim M = 7, N = {SIZE}, D = 11
input X: f32[M, N]
input C: bool[M, N]
input V: f32[N, D]
output O: f32[M, D]
"""
_BODIES = (
    "O[i, d] = sum[j](softmax[j | C[i, j]](X[i, j]) * V[j, d])",
    "O[i, d] = sum[j](V[j, d] * softmax[j | C[i, j]](X[i, j]))",
    "O[i, d] = sum[j](softmax[j](X[i, j]) * V[j, d])",
    "O[i, d] = sum[j](V[j, d] * softmax[j](X[i, j]))",
)


@dataclass(frozen=True)
class Operand:
    """An input as [batch, head, row, inner].

    ``order`` gives the dimension of the input for each of the four, or None.  ``groups`` is the number of query heads
    that share one head of the input.
    """

    name: str
    order: tuple[int | None, ...]
    groups: int = 1


@dataclass(frozen=True)
class Scores:
    """Names of the indices (batch, head, row, column), the score as a function of :data:`SCORE`, and the mask."""

    batch: str | None
    head: str | None
    row: str
    column: str
    expr: Expr
    mask: Expr | None


@dataclass(frozen=True)
class Attention:
    """A match.  ``output`` gives the position in [batch, head, row, inner] of each dimension of the output."""

    q: Operand
    k: Operand
    v: Operand
    scores: Scores
    scale: float
    output: tuple[int, ...]
    rows: int
    columns: int


def match(spec: Spec) -> Attention:
    """``spec`` as an attention call.  Raises NotApplicable where it is none."""
    if len(spec.outputs) != 1:
        raise NotApplicable("the spec has several outputs")
    out = spec.outputs[0]
    e, axes = inlined(spec, out.name), spec.definition(out.name).axes
    found = _weights(e)
    column = found["V"].names[0]
    value = strip_casts(found["V"].expr)
    products = _contractions(found["X"].expr)
    if not isinstance(value, Load) or value.buffer not in _inputs(spec) or len(products) != 1:
        raise NotApplicable("the scores are not a function of one contraction of two inputs")
    core = products[0]
    q, k = _queries(core, column)
    inner = core.axes[0].name
    names = [a.name for a in axes]
    width = _one([n for n in names if _has(value, n) and not _has(q, n) and not _has(k, n)], "value columns")
    free = [n for n in names if _has(q, n) and not _mentions(k, n) and not _mentions(value, n)]
    sizes = {a.name: a.extent if isinstance(a.extent, int) else 0 for a in axes}
    # where heads share all keys, only their sizes distinguish rows from heads
    row = _one([n for n in free if sizes[n] == max(sizes[m] for m in free)][:1], "rows")
    batch = [n for n in names if n not in (row, width)]
    if len(batch) > 2:
        raise NotApplicable("the spec has more than two batch dimensions")
    slots = [*[None] * (2 - len(batch)), *batch]
    mask = found["C"].expr if "C" in found else None
    expr, scale = _scaled(_around(found["X"].expr, core))
    scores = Scores(slots[0], slots[1], row, column, expr, mask)
    extents = {a.name: a.extent for a in axes}
    shape = {t.name: t.shape for t in spec.inputs}
    rows, columns = extents[row], _inner_extent(e, column)
    if not isinstance(rows, int):
        raise NotApplicable("a size of the spec is known only at launch")
    parts = ((q, row, inner), (k, column, inner), (value, column, width))
    made = [_operand(x, slots, r, c) for x, r, c in parts]
    heads = extents[slots[1]] if slots[1] is not None else 1
    q_, k_, v_ = (_grouped(o, heads, shape) for o in made)
    if q_.groups != 1 or k_.groups != v_.groups:
        raise NotApplicable("keys and values are shared by heads in different ways")
    order = [*slots, row, width]
    return Attention(q_, k_, v_, scores, scale, tuple(order.index(n) for n in names), rows, columns)


def _weights(e: Expr) -> Found:
    """The parts of a weighted sum by a softmax."""
    if isinstance(e, Reduce) and e.op == "sum":
        for body in _BODIES:
            found: Found = {}
            if unify(template(f"{_HEAD}{body}\n"), e, {}, found) and len(found["X"].names) == 1:
                return found
    raise NotApplicable("the output is not a sum weighted by a softmax")


def _inputs(spec: Spec) -> set[str]:
    return {t.name for t in spec.inputs}


def _contractions(e: Expr) -> list[Reduce]:
    """The sums over one index of a product of two inputs in ``e``."""
    out: list[Reduce] = []
    for n in walk(e):
        if isinstance(n, Reduce) and n not in out:
            if n.op != "sum" or n.cond is not None or len(n.axes) != 1 or _pair(n) is None:
                raise NotApplicable("the scores contain a reduction that is not a contraction")
            out.append(n)
    return out


def _pair(e: Reduce) -> tuple[Load, Load] | None:
    if isinstance(e.body, Op) and e.body.op == "mul":
        a, b = map(strip_casts, e.body.args)
        if isinstance(a, Load) and isinstance(b, Load):
            return a, b
    return None


def _queries(core: Reduce, column: str) -> tuple[Load, Load]:
    """The two factors, the one that has the column's index second."""
    pair = _pair(core)
    assert pair is not None
    a, b = pair
    if _mentions(a, column) == _mentions(b, column):
        raise NotApplicable("exactly one factor of the scores must have the summed index")
    return (b, a) if _mentions(a, column) else (a, b)


def _has(e: Load, name: str) -> bool:
    return any(isinstance(i, Var) and i.name == name for i in e.index)


def _mentions(e: Load, name: str) -> bool:
    return any(name in free_vars(i) for i in e.index)


def _one(names: list[str], what: str) -> str:
    if len(names) != 1:
        raise NotApplicable(f"{len(names)} indices could be the {what}")
    return names[0]


def _inner_extent(e: Expr, column: str) -> int:
    for n in walk(e):
        if isinstance(n, Reduce):
            for a in n.axes:
                if a.name == column and isinstance(a.extent, int):
                    return a.extent
    raise NotApplicable("a size of the spec is known only at launch")


def _around(e: Expr, core: Reduce) -> Expr:
    """``e`` with the contraction replaced by :data:`SCORE`."""
    return replaced(e, core, Var(SCORE, DType.F32))


def _scaled(e: Expr) -> tuple[Expr, float]:
    """The score function without constant factors applied directly to the contraction, and their product."""
    scale = 1.0
    while True:
        uses = [n for n in walk(e) if isinstance(n, Op) and any(_is_score(a) for a in n.args)]
        if len(uses) != 1 or _count(e) != 1:
            return e, scale
        use = uses[0]
        constant = [a for a in use.args if isinstance(a, Const)]
        by = float(constant[0].value) if constant else 0.0
        if use.op == "mul" and by:
            scale *= by
        elif use.op == "div" and by and _is_score(use.args[0]):
            scale /= by
        else:
            return e, scale
        e = replaced(e, use, Var(SCORE, DType.F32))


def _is_score(e: Expr) -> bool:
    return isinstance(e, Var) and e.name == SCORE


def _count(e: Expr) -> int:
    """The number of occurrences of the score in ``e``."""
    if _is_score(e):
        return 1
    return sum(_count(a) for a in e.args) if isinstance(e, Op) else 0


def _operand(e: Load, slots: list[str | None], row: str, inner: str) -> Operand:
    """``e`` as [slots..., row, inner]; a group ``h // G`` is allowed in the second slot."""
    order: list[int | None] = []
    groups = 1
    left = set(range(len(e.index)))
    for n in (*slots, row, inner):
        places = [p for p, i in enumerate(e.index) if n is not None and n in free_vars(i)]
        if len(places) > 1:
            raise NotApplicable(f"{e.buffer} uses an index twice")
        order.append(places[0] if places else None)
        left -= set(places)
        if places and not isinstance(e.index[places[0]], Var):
            groups = _group(e.index[places[0]])
            if not groups or n is None or n != slots[1]:
                raise NotApplicable(f"{e.buffer} has an index that no library call supports")
    if left or order[2] is None or order[3] is None:
        raise NotApplicable(f"{e.buffer} has an index that no library call supports")
    return Operand(e.buffer, tuple(order), groups)


def _group(e: Expr) -> int:
    match e:
        case Op(op="floordiv", args=(Var(), Const(value=n))):
            return int(n)
    return 0


def _grouped(o: Operand, heads: object, shape: Mapping[str, tuple[object, ...]]) -> Operand:
    """``o`` with its group size checked; an operand without heads is shared by all heads."""
    if not isinstance(heads, int):
        raise NotApplicable("a size of the spec is known only at launch")
    own = 1 if o.order[1] is None else shape[o.name][o.order[1]]
    groups = heads if o.order[1] is None else o.groups
    if not isinstance(own, int) or own * groups != heads:
        raise NotApplicable(f"the heads of {o.name} are not shared evenly")
    return replace(o, groups=groups)


# -- mask and score function ---------------------------------------------------------------------


def mask_kind(a: Attention) -> str:
    """``none``, ``causal`` (row i admits columns up to i + columns - rows), or ``other``.

    The condition is evaluated for every column and sampled rows, first and last ones included.
    """
    if a.scores.mask is None:
        return "none"
    if any(isinstance(n, (Load, Param)) for n in walk(a.scores.mask)) or free_vars(a.scores.mask) - {
        a.scores.row,
        a.scores.column,
    }:
        return "other"
    i = np.unique(np.linspace(0, a.rows - 1, min(a.rows, 257)).astype(np.int64))[:, None]
    j = np.arange(a.columns, dtype=np.int64)[None]
    kept = np.broadcast_to(evaluate(a.scores.mask, {a.scores.row: i, a.scores.column: j}), (i.size, j.size))
    if kept.all():
        return "none"
    return "causal" if np.array_equal(kept, j <= i + (a.columns - a.rows)) else "other"


@dataclass(frozen=True)
class ScoreText:
    """Python source of ``make(tensors...)``, which returns a function of (score,) batch, head, row and column."""

    text: str
    tensors: tuple[str, ...]


def score_function(a: Attention, scalars: Mapping[str, float | int | bool]) -> ScoreText | None:
    """The score function for FlexAttention's ``score_mod``; None if it is the identity."""
    if _is_score(a.scores.expr):
        return None
    return _function(a, a.scores.expr, "score, ", scalars)


def mask_function(a: Attention, scalars: Mapping[str, float | int | bool]) -> ScoreText | None:
    """The mask for FlexAttention's ``mask_mod``; None without a mask."""
    return None if a.scores.mask is None else _function(a, a.scores.mask, "", scalars)


def _function(a: Attention, e: Expr, first: str, scalars: Mapping[str, float | int | bool]) -> ScoreText:
    s = a.scores
    names = {SCORE: "score", s.row: "i", s.column: "j"}
    names |= {n: t for n, t in ((s.batch, "b"), (s.head, "h")) if n is not None}
    tensors = tuple(sorted({n.buffer for n in walk(e) if isinstance(n, Load)}))
    places = {t: f"t{p}" for p, t in enumerate(tensors)}
    body = _text(e, names, places, scalars)
    parameters = ", ".join(places.values())
    text = f"def make({parameters}):\n    def mod({first}b, h, i, j):\n        return {body}\n    return mod\n"
    return ScoreText(text, tensors)


def _text(e: Expr, names: Mapping[str, str], places: Mapping[str, str], scalars: Mapping[str, float]) -> str:
    match e:
        case Const(value=value):
            return number(value)
        case Param(name=name):
            return number(scalars[name])
        case Var(name=name) if name in names:
            return names[name]
        case Load(buffer=buffer, index=index):
            return f"{places[buffer]}[{', '.join(_text(i, names, places, scalars) for i in index)}]"
        case Op(op="cast", args=(x,)) if e.dtype in (DType.F32, DType.F64, DType.I32, DType.I64):
            return _text(x, names, places, scalars)
        case Op(op=op, args=args):
            texts = [_text(x, names, places, scalars) for x in args]
            return operation(op, texts, [isinstance(x, (Const, Param)) for x in args])
    raise NotApplicable("the score function contains more than indices and small inputs")


def mask_names(a: Attention) -> frozenset[str]:
    """The indices that the mask depends on."""
    return frozenset() if a.scores.mask is None else free_vars(a.scores.mask)
