"""Index expressions in the model: what they are where sizes and elements of tensors are not known.

A runtime size has its nominal value.  What the lengths of a caller are is not known: the elements of a tensor at which
loops end are taken as spread evenly over their range (:func:`spread`), the first one as the whole range.  Then blocks
have unequal work, as in the batches of a server.  A loop that begins at an element is as long as it may be.  Ends that
follow each other in one tensor, ``ptr[n]`` and ``ptr[n + 1]``, are those of segments (:func:`segment_end`).
A window that begins and ends at one element, ``len[b] - W <= j < len[b]``, is at the end of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Load, Op, Param, Var, free_vars, loads, walk
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import nominal, nominal_size
from nautilus.core.types import DType
from nautilus.ma_tile.ir.async_ops import TmaLoad, TmaStore
from nautilus.ma_tile.ir.ops import AsyncCopy, ForOp, GlobalLoad, GlobalStore, IfOp, LetOp, MemKernel, walk_ops

Segments: TypeAlias = "Mapping[str, tuple[int, int]]"

_ROW = 4099  # elements of a row of a tensor of rows, as far as it is known which ones they choose; a prime
FAR = 1 << 30  # beyond any size, and so far from the limits of i32 that positions do not wrap
MOST_SEGMENTS = 64  # segments that are evaluated one by one; they represent all others
_TRIED = 64  # numbers of which one search evaluates an expression at the same time


def estimated(e: Expr, env: Mapping[str, Any]) -> Any:
    """``e`` at the values of ``env``; runtime sizes have their nominal value, values from memory a placeholder."""
    return evaluate(e, env, _placeholder)


def _placeholder(e: Expr) -> Any:
    return np.asarray(True if e.dtype is DType.BOOL else nominal_size(e) if isinstance(e, Param) else 0)


def chosen_rows(kernel: MemKernel, buffers: Mapping[str, Buffer]) -> dict[str, int]:
    """The variables of ``kernel`` that are elements of tensors and choose rows, each with the number of the rows.

    Bounds, conditions and other variables do not depend on them, and they are the same in all iterations.
    """
    ops = list(walk_ops(kernel.body))
    varied = {op.var for op in ops if isinstance(op, ForOp)}
    for op in ops:
        if isinstance(op, LetOp) and free_vars(op.expr) & varied:
            varied.add(op.var)
    named = dict((*kernel.decode, *((op.var, op.expr) for op in ops if isinstance(op, LetOp))))
    other = [*named.values(), *(e for op in ops if isinstance(op, ForOp) for e in (op.lo, op.hi))]
    other += [op.cond for op in ops if isinstance(op, IfOp)]
    read = frozenset[str]().union(*map(free_vars, other))
    single = {name for name, e in named.items() if len({*loads(e)}) == 1} - read - varied
    rows: dict[str, int] = {}
    for op in ops:
        if isinstance(op, AsyncCopy | GlobalLoad | TmaLoad):
            for e, n in zip(op.index, buffers[op.buffer].shape, strict=True):
                if isinstance(e, Var) and e.name in single:
                    rows[e.name] = max(rows.get(e.name, 1), nominal(n))
    return rows


def _chosen_row(e: Expr, env: Mapping[str, Any], rows: int) -> Any:
    """The one of ``rows`` that an element in ``e`` chooses: neighbouring elements choose different ones."""

    def read(n: Expr) -> Any:
        if not isinstance(n, Load):
            return _placeholder(n)
        place = np.asarray(0)
        for i in n.index:
            place = place * _ROW + estimated(i, env)
        return place % rows

    return evaluate(e, env, read)


def starts_of(kernel: MemKernel) -> frozenset[str]:
    """Variables with which a loop begins, and that do not end an earlier one.

    A loop of at most one iteration, whose ends say whether other loops have any, ends at none of these variables.
    """
    starts, ends = set[str](), set[str]()
    for op in walk_ops(kernel.body):
        if isinstance(op, ForOp) and not _asks(op):
            starts |= free_vars(op.lo) - ends
            ends |= free_vars(op.hi) - starts
    return frozenset(starts)


def _last_ends(kernel: MemKernel) -> frozenset[str]:
    """Variables with which the last loop of each chain ends: no other loop begins with them."""
    loops = [op for op in walk_ops(kernel.body) if isinstance(op, ForOp) and not _asks(op)]
    starts = frozenset(x for op in loops for x in free_vars(op.lo))
    return frozenset(x for op in loops for x in free_vars(op.hi)) - starts


def _asks(op: ForOp) -> bool:
    match op.hi:
        case Op(op="select", args=(_, Const(value=1), Const(value=0))):
            return True
    return False


def segment_rows(kernel: MemKernel, buffers: Mapping[str, Buffer]) -> dict[str, tuple[int, int]]:
    """The length and the number of the segments whose ends a tensor has, for each one that bounds in ``kernel`` read.

    The length is that of all of them together.
    """
    named = [*kernel.decode, *((op.var, op.expr) for op in walk_ops(kernel.body) if isinstance(op, LetOp))]
    ends = _last_ends(kernel)
    reads = [frozenset(map(_unclamped, loads(x))) for _, e in named for x in _compared(e)]
    out: dict[str, tuple[int, int]] = {}
    for ld in frozenset().union(*reads):
        if not ld.index:
            continue  # a tensor of one element
        rows = buffers[ld.buffer].shape[-1]
        following = replace(ld, index=(*ld.index[:-1], simplify(calc("add", ld.index[-1], 1))))
        # both in one expression: the least or greatest end of several rows
        if isinstance(rows, int) and rows > 1 and any(following in found and ld not in found for found in reads):
            limits = _limits([e for _, e in named], {ld.buffer})
            if ld.buffer in limits:
                limits[ld.buffer] = min(limits[ld.buffer], _compared_rows(kernel, buffers, ld.buffer))
                last = [_decisive(e, ld.buffer, limits[ld.buffer]) for name, e in named if name in ends]
                out[ld.buffer] = max(last, default=0) or limits[ld.buffer], rows - 1
    return out


def segment_end(n: Any, length: int, number: int) -> Any:
    """The end of segment ``n - 1`` and the beginning of segment ``n``, of ``number`` segments of ``length`` in all.

    Their lengths are those between ends at random, the longest first: of 32 segments, it is 4.5 times the mean.
    """
    share = np.clip(np.asarray(n, np.float64) / number, 0.0, 1.0)
    return np.rint(length * (share - share * np.log(np.maximum(share, 1e-30)))).astype(np.int64)


def _compared_rows(kernel: MemKernel, buffers: Mapping[str, Buffer], ends: str) -> int:
    """The most rows that the positions have with which elements of ``ends`` are compared; :data:`FAR` if unknown.

    They are those of a tensor that is read or stored at such a position.  The bound of a runtime size is far beyond
    its value, and segments that reached up to it would leave one for each tile.
    """
    rows = dict[tuple[Expr, int], int]()
    for op in walk_ops(kernel.body):
        if isinstance(op, AsyncCopy | GlobalLoad | GlobalStore | TmaLoad | TmaStore):
            for e, n in zip(op.index, buffers[op.buffer].shape, strict=True):
                rows |= {term: n for term in linear(e).terms.items() if isinstance(n, int)}
    found = FAR
    for let in (op.expr for op in walk_ops(kernel.body) if isinstance(op, LetOp)):
        for x in (x for e in _compared(let) for x in walk(e) if isinstance(x, Op) and x.op in COMPARISONS):
            if any(ld.buffer == ends for ld in loads(x)):
                terms = [t for a in x.args if not loads(a) for t in linear(a).terms.items() if isinstance(t[0], Var)]
                found = min(found, *(rows.get(t, FAR) for t in terms), FAR)
    return found


def _unclamped(ld: Load) -> Load:
    """``ld`` without the bounds of its last position, which keep it inside of its tensor where no condition does."""
    e = ld.index[-1] if ld.index else None
    while isinstance(e, Op) and e.op in ("min", "max") and isinstance(e.args[1], Const):
        e = e.args[0]
    return ld if e is None else replace(ld, index=(*ld.index[:-1], e))


def _decisive(e: Expr, buffer: str, most: int) -> int:
    """The least element of ``buffer`` from which on, up to ``most``, ``e`` does not grow; 0 where it never does.

    A size that is less than the bound of the elements ends a loop before them.  An end that comparisons choose does not
    grow with the element: they say whether rows overlap with a segment.
    """
    env = dict.fromkeys(free_vars(e), 0)

    chosen = any(isinstance(x, Op) and x.op in COMPARISONS for x in _compared(e))
    if chosen or all(ld.buffer != buffer for ld in loads(e)):
        return 0
    return _first_of(
        lambda n: evaluate(e, env, lambda x: np.asarray(n) if isinstance(x, Load) else _placeholder(x)), most
    )


def choices(op: ForOp, low: Any, high: Any, segments: Segments) -> list[tuple[Any, float]]:
    """Values of the variable of ``op``, with their shares, if its iterations choose among ``segments``; else none.

    A block of rows overlaps with few segments, which need not be the one in the middle.
    """
    read = [ld for x in op.body if isinstance(x, LetOp) for ld in loads(x.expr) if ld.buffer in segments]
    if not any(op.var in free_vars(ld) for ld in read) or np.size(low) > 1 or np.size(high) > 1:
        return []
    first, last = int(low), int(high) - 1
    values = np.linspace(first, last, min(last - first + 1, MOST_SEGMENTS)).round()
    return [(np.asarray(int(v)), 1 / len(values)) for v in values]


def _compared(e: Expr) -> Iterator[Expr]:
    """``e``, or the comparisons that decide a choice: a block of rows overlaps with a segment by both of its ends."""
    match e:
        case Op(op="select", args=(cond, a, b)) if not any(loads(x) for x in (a, b)):
            yield from (x for x in walk(cond) if isinstance(x, Op) and x.op in COMPARISONS)
        case Op(op="min" | "max", args=args) if any(isinstance(x, Op) and x.op == "select" for x in args):
            yield from (y for x in args for y in _compared(x))
        case _:
            yield e


def window_ends(kernel: MemKernel, starts: frozenset[str]) -> dict[str, int]:
    """The greatest element that counts, for each tensor of which both starts and ends of loops read an element.

    It is the least of the limits at which they clamp it: a position beside it has a limit beyond the axis.
    Where the mask of the first elements has a loop of its own, that one ends at a block that the start gives.
    """
    lets = [(op.var, op.expr) for op in walk_ops(kernel.body) if isinstance(op, LetOp)]
    exprs = (*kernel.decode, *lets)
    first, last = ({ld for x, e in exprs if x in names for ld in loads(e)} for names in (starts, _last_ends(kernel)))
    return _limits([e for _, e in exprs], {ld.buffer for ld in first & last}, min)


def _limits(exprs: Iterable[Expr], buffers: Collection[str], among: Callable[..., int] = max) -> dict[str, int]:
    """The greatest value that ``exprs`` give an element of each of ``buffers``, if they choose the lesser value.

    ``among``: the one of several such values.
    """
    found: dict[str, int] = {}
    for x in (x for e in exprs for x in walk(e)) if buffers else ():
        match x:
            case Op(op="min", args=(a, Const(value=value))):
                found |= {ld.buffer: among(int(value), found.get(ld.buffer, int(value))) for ld in loads(a)}
    return {name: most for name, most in found.items() if name in buffers}


def loop_end(
    e: Expr, env: Mapping[str, Any], segments: Segments, windows: Mapping[str, int], *, starts: bool, rows: int = 0
) -> Any:
    """``e``, at which a loop ``starts`` or ends.

    Every element that it reads is far below any size if a loop starts at it, else one that :func:`spread` says.
    An element of which the other extreme makes the loop longer is that, such as the length of a window that ends at it.
    ``segments``: their length and number by the tensors that have their ends; ``windows``: the ends of windows.
    ``rows``: ``e`` is no end, but chooses one of them (:func:`chosen_rows`).
    """
    if rows:
        return _chosen_row(e, env, rows)
    far = FAR // max(1, _factor(e))  # a product of it with a constant wraps no more than it does
    usual, other = (-far, far) if starts else (far, -far)

    def value(env: Mapping[str, Any], turned: Collection[str] = (), usual: Any = usual) -> Any:
        def read(n: Expr) -> Any:
            if isinstance(n, Load) and n.buffer in segments:
                return segment_end(estimated(n.index[-1], env), *segments[n.buffer])
            if isinstance(n, Load) and n.buffer in windows:
                return np.asarray(windows[n.buffer])
            if not isinstance(n, Load):
                return _placeholder(n)
            return np.asarray(other) if n.buffer in turned else usual(n) if callable(usual) else np.asarray(usual)

        return evaluate(e, env, read)

    found, turned = value(env), frozenset[str]()
    free = sorted({ld.buffer for ld in loads(e)} - segments.keys() - windows.keys())
    for name in free:
        changed = value(env, turned | {name})
        if np.sum(changed) < np.sum(found) if starts else np.sum(changed) > np.sum(found):
            turned, found = turned | {name}, changed
    if starts or not free or turned:
        return found
    last = np.size(found) - 1 - int(np.argmax(np.ravel(found)[::-1]))  # of causal rows, those that meet most lengths
    one = {v: np.ravel(x)[min(last, np.size(x) - 1)] for v, x in env.items() if not isinstance(x, tuple)}
    top = _first_of(lambda n: value(one, usual=n), FAR)
    return value(env, usual=lambda n: spread(n, env, top))


def _factor(e: Expr) -> int:
    """The greatest constant by which ``e`` multiplies an element that it reads; 0 where it reads none."""
    match e:
        case Load():
            return 1
        case Op(op="mul", args=(a, Const(value=value))):
            return max(1, abs(int(value))) * _factor(a)
        case Op(args=args):
            return max(map(_factor, args), default=0)
    return 0


def _first_of(at: Callable[[Any], Any], most: int) -> int:
    """The least number up to ``most`` from which on ``at``, given many at once, has the value that it has there."""
    low, high, top = 0, most, at(most)
    while low < high:
        tried = np.unique(np.linspace(low, high - 1, _TRIED).astype(np.int64))
        same = np.broadcast_to(at(tried) == top, tried.shape)
        first = int(np.argmax(same)) if same.any() else len(tried)
        low, high = low if first == 0 else int(tried[first - 1]) + 1, high if first == len(tried) else int(tried[first])
    return high


def spread(ld: Load, env: Mapping[str, Any], most: int) -> Any:
    """The element that ``ld`` reads, of lengths up to ``most``: ``most``, half of it, three quarters, a quarter, ..."""
    number, share, part = np.asarray(_number(ld, env)), np.asarray(1.0), 0.5
    while np.any(number):
        number, share, part = number // 2, share - part * (number % 2), part / 2
    return (share * most).astype(np.int64)


def _number(ld: Load, env: Mapping[str, Any]) -> Any:
    """The number of the element that ``ld`` reads among those of other rows: its last index that blocks differ in."""
    places = [estimated(i, env) for i in ld.index]
    return np.maximum(next((p for p in reversed(places) if np.size(p) > 1), 0), 0)


def share_of_one(mask: Expr | None, env: Mapping[str, Any]) -> Any:
    """The share of the iterations of loops in which ``mask`` may hold, where it says of a loop which one that is."""
    share: Any = 1.0
    for c in conjuncts(mask):
        named = free_vars(c) if isinstance(c, Op) and c.op == "eq" else frozenset[str]()
        for low, last in (env[f"{v}#"] for v in named if f"{v}#" in env):
            share = share / np.maximum(1.0, np.asarray(last, np.float64) - low + 1.0)
    return share


def within_loop(
    cond: Expr, env: dict[str, Any], var: str, low: Any, trips: Any, most: int
) -> tuple[Any, dict[str, Any]] | None:
    """The share of the ``trips`` iterations of a loop over ``var`` in which ``cond`` holds, and ``env`` in these.

    The last iterations of a loop, for example, copy nothing for later ones.  None where that takes more than ``most``
    evaluations.
    """
    steps = np.arange(int(np.max(trips, initial=1)))[:, None]
    if steps.size * np.size(low + trips) > most:
        return None
    first, count = np.reshape(low, (1, -1)), np.reshape(trips, (1, -1))
    found = np.asarray(estimated(cond, {**env, var: first + steps}), np.float64) * (steps < count)
    share = found.sum(0) / np.maximum(1.0, count[0])
    ends = first[0] + found.argmax(0), first[0] + len(steps) - 1 - found[::-1].argmax(0)
    last = _plain(ends[1])
    return _plain(share), {**env, f"{var}#": (_plain(ends[0]), last), var: np.minimum(env[var], last)}


def _plain(x: Any) -> Any:
    """``x`` without its axis where it has one element."""
    return x if np.size(x) > 1 else x[0]
