"""Recognition of sums that a convolution of the library computes, by their algebra.

A convolution is a sum of products of an *image* and a *filter*, two tensors.  A dimension of the image that is read at
``stride * x + dilation * r - before``, where ``r`` is summed (a *tap*) and ``x`` indexes the output alone, is a
*window*.  A transposed convolution reads it at ``(x + before - dilation * r) // stride``, where that is exact.  Other
dimensions are channels, which the filter has too, and batch.  Groups of channels are an index of their own or a
quotient of the output channel.  The condition of the sum may exclude what lies outside of the image, nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.bench.peers.algebra import constant_factor, fold, strip_casts
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var, free_vars, walk
from nautilus.core.expr.products import indexed_factors
from nautilus.core.index.linear import ZERO, Linear, divided, excess, linear
from nautilus.core.records import dataclass
from nautilus.frontend.spec import Spec

Shapes = Mapping[str, Sequence[int]]
Role = tuple[str, int]  # what a dimension or a part of one stands for, and its size
_GROUP, _OUT, _IN = "group", "out", "in"


@dataclass(frozen=True)
class Window:
    """A spatial dimension ``dim`` of the image with ``size`` elements; ``tap`` None: one tap, which no index names.

    ``before``: padded elements at the start, or, where negative, elements that are skipped.
    """

    dim: int
    position: str
    size: int
    outputs: int
    tap: str = ""
    taps: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    transposed: bool = False

    @property
    def after(self) -> int:
        """Zeros that must be appended to the image so that every output exists."""
        last = self.stride * (self.outputs - 1) + self.dilation * (self.taps - 1) - self.before
        return 0 if self.transposed else max(0, last + 1 - self.size - max(self.before, 0))

    @property
    def extra(self) -> int:
        """Outputs of a transposed convolution after those of the last element of the image; negative: unwanted ones."""
        made = (self.size - 1) * self.stride - 2 * self.before + self.dilation * (self.taps - 1) + 1
        return self.outputs - made if self.transposed else 0

    @property
    def made(self) -> int:
        """The outputs that the library returns."""
        if self.transposed:
            return self.outputs - min(self.extra, 0)
        padded = self.size + self.before + max(self.before, 0) + self.after
        return (padded - self.dilation * (self.taps - 1) - 1) // self.stride + 1


@dataclass(frozen=True)
class Convolution:
    """A match: how to arrange the operands, the numbers of the call, and the names of the dimensions of its result."""

    image: Load
    filter: Load
    windows: tuple[Window, ...]
    image_order: tuple[int, ...]
    batch: tuple[Role, ...]
    groups: int
    channels: int  # of one group
    parts: tuple[int, ...]  # sizes of the parts of the filter's dimensions
    filter_order: tuple[int, ...]  # of these parts
    filter_shape: tuple[int, ...]
    outputs: tuple[Role, ...]  # channels of the result
    scale: float = 1.0  # what the spec multiplies by besides

    @property
    def transposed(self) -> bool:
        """Whether it is a transposed convolution."""
        return any(w.transposed for w in self.windows)

    @property
    def channels_last(self) -> bool:
        """Whether the channels are the last dimension of the image in memory."""
        return self.image_order[-len(self.windows) :] != tuple(range(len(self.image_order)))[-len(self.windows) :]

    @property
    def channel(self) -> tuple[str, ...]:
        """The indices of the channels of the result, which a bias has too."""
        return tuple(n for n, _ in self.outputs)

    @property
    def names(self) -> tuple[str, ...]:
        """The index of each dimension of the result."""
        return (*(n for n, _ in self.batch), *self.channel, *(w.position for w in self.windows))

    def arranged_filter(self, text: str) -> str:
        """The filter as [output channels, channels of a group, taps...], with the first two swapped if transposed."""
        if len(self.parts) != len(self.filter.index):
            text = f"{text}.reshape({_tuple(self.parts)})"
        return _reshaped(_permuted(text, self.filter_order), [self.parts[p] for p in self.filter_order],
                         self.filter_shape)  # fmt: skip

    def call(self, image: str, filter_: str, bias: str = "") -> str:
        """The call of the library on the text of the operands; its dimensions are :attr:`names`."""
        numbers = {
            "stride": [w.stride for w in self.windows],
            "padding": [max(w.before, 0) for w in self.windows],
            "dilation": [w.dilation for w in self.windows],
        }
        if self.transposed:
            numbers["output_padding"] = [max(w.extra, 0) for w in self.windows]
        said = "".join(f", {n}={_tuple(v)}" for n, v in numbers.items())
        operands = f"{self._arranged_image(image)}, {self.arranged_filter(filter_)}"
        kind = "conv_transpose" if self.transposed else "conv"
        name = f"torch.nn.functional.{kind}{len(self.windows)}d"
        text = f"{name}({operands}, {bias or None}{said}, groups={self.groups})"
        for n, w in enumerate(self.windows):
            text = text if w.made == w.outputs else f"{text}.narrow({n + 2}, 0, {w.outputs})"
        spatial = [w.outputs for w in self.windows]
        split = [*(s for _, s in (*self.batch, *self.outputs)), *spatial]
        return _reshaped(text, [prod(s for _, s in self.batch), prod(s for _, s in self.outputs), *spatial], split)

    def _arranged_image(self, text: str) -> str:
        sizes = [w.size for w in self.windows]
        for n, w in enumerate(self.windows):
            if w.before < 0 and not w.transposed:
                sizes[n] += w.before
                text = f"{text}.narrow({w.dim}, {-w.before}, {sizes[n]})"
        text = _permuted(text, self.image_order)
        shape = [prod(s for _, s in self.batch), self.groups * self.channels, *sizes]
        if len(self.image_order) != len(shape) or len(self.batch) != 1:
            text = f"{text}.reshape({_tuple(shape)})"
        if any(w.after for w in self.windows):
            ends = [n for w in reversed(self.windows) for n in (0, w.after)]
            text = f"torch.nn.functional.pad({text}, {_tuple(ends)})"
        return text


def _tuple(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))}{',' if len(numbers) == 1 else ''})"


def _permuted(text: str, order: Sequence[int]) -> str:
    return text if list(order) == sorted(order) else f"{text}.permute({_tuple(order)})"


def _reshaped(text: str, have: Sequence[int], want: Sequence[int]) -> str:
    return text if list(have) == list(want) else f"{text}.reshape({_tuple(want)})"


def convolutions(spec: Spec) -> list[Convolution]:
    """The sums of ``spec`` that are convolutions."""
    shapes = {t.name: t.shape for t in spec.tensors.values()} | {d.name: d.shape for d in spec.definitions}
    fixed = {n: [e if isinstance(e, int) else 0 for e in shape] for n, shape in shapes.items()}
    made = [match(n, _extents(d.axes), fixed)
            for d in spec.definitions for n in walk(fold(d.expr)) if isinstance(n, Reduce)]  # fmt: skip
    return [c for c in made if c is not None]


def match(e: Reduce, extents: Mapping[str, int], shapes: Shapes) -> Convolution | None:
    """``e`` as a convolution; ``extents`` of the indices around it, at least.  None where it is none."""
    conditions, body = _without_zeros(e.body)
    parts = [_without_zeros(p) for p in indexed_factors(body)] if e.op == "sum" and e.dtype.is_float else []
    loads = [p for _, p in parts if isinstance(p, Load)]
    scale = constant_factor(body, indexed_factors(body))
    if len(parts) != 2 or scale is None:
        return None
    conditions = [*conjuncts(e.cond), *conditions, *(c for found, _ in parts for c in found)]
    reduced = _extents(e.axes)
    outer = {n: size for n, size in extents.items() if n not in reduced}
    used = frozenset[str]().union(*map(free_vars, loads))
    known = used <= {*reduced, *outer}  # no index of a reduction around the sum
    for image, filter_ in zip(loads, loads[::-1], strict=True) if len(loads) == 2 and known else ():
        made = _Matcher(image, filter_, reduced, outer, shapes).match(conditions)
        if made is not None:
            return replace(made, scale=scale)
    return None


def _without_zeros(e: Expr) -> tuple[list[Expr], Expr]:
    """The conditions under which ``e`` is not the zero that it selects otherwise, and its value then."""
    found: list[Expr] = []
    while True:
        match e := strip_casts(e):
            case Op(op="select", args=(c, value, Const(value=0))):
                found, e = [*found, *conjuncts(c)], value
            case _:
                return found, e


def _extents(axes: Sequence[Axis]) -> dict[str, int]:
    return {a.name: a.extent if isinstance(a.extent, int) else 0 for a in axes}


@dataclass(frozen=True)
class _Matcher:
    image: Load
    filter: Load
    reduced: Mapping[str, int]
    extents: Mapping[str, int]
    shapes: Shapes

    def match(self, conditions: Sequence[Expr]) -> Convolution | None:
        windows, plain, channels = self._dimensions()
        if not any(w.tap for w in windows) or len(windows) > 3:
            return None
        kinds = {w.transposed for w in windows if w.tap}
        if len(kinds) != 1 or not all(self._excludes_outside(c, windows) for c in conditions):
            return None
        transposed = kinds == {True}
        windows = [replace(w, transposed=transposed) for w in windows]
        if transposed and not all(self._is_exact(w, conditions) and w.before >= 0 for w in windows):
            return None
        if any(w.extra >= max(w.stride, w.dilation, 1) and w.extra > 0 for w in windows):
            return None
        sizes = self.shapes[self.image.buffer]
        if any(self.extents[n] != sizes[p] for p, n in plain) or 0 in sizes:
            return None
        return self._arranged(windows, plain, channels)

    def _dimensions(self) -> tuple[list[Window], list[tuple[int, str]], list[int]]:
        """The windows, the batch dimensions with their indices, and the dimensions of channels of the image."""
        windows: list[Window] = []
        plain: list[tuple[int, str]] = []
        channels: list[int] = []
        own = free_vars(self.filter)
        for p, index in enumerate(self.image.index):
            made = self._window(p, index)
            if made is not None:
                windows.append(made)
            elif isinstance(index, Var) and index.name not in own and index.name not in self.reduced:
                size = self.shapes[self.image.buffer][p]
                if windows or channels:
                    windows.append(Window(p, index.name, size, self.extents[index.name]))
                else:
                    plain.append((p, index.name))
            else:
                channels.append(p)
        for w in [w for w in windows if not w.tap][: max(0, len(windows) - 3)]:
            windows.remove(w)
            plain.append((w.dim, w.position))
        return windows, plain, channels

    def _window(self, dim: int, index: Expr) -> Window | None:
        stride, inner = 1, index
        match index:
            case Op(op="floordiv", args=(a, Const(value=n))):
                stride, inner = int(n), a
        form = linear(inner)
        names = [(a.name, c) for a, c in form.terms.items() if isinstance(a, Var)]
        outer = [x for x in names if x[0] not in self.reduced]
        taps = [x for x in names if x[0] in self.reduced]
        if len(form.terms) != 2 or len(outer) != 1 or len(taps) != 1:
            return None
        (position, step), (tap, dilation) = outer[0], taps[0]
        if position in free_vars(self.filter) or step < 1:
            return None
        size = self.shapes[self.image.buffer][dim]
        made = Window(dim, position, size, self.extents[position], tap, self.reduced[tap])
        if dilation > 0 and stride == 1:
            return replace(made, stride=step, dilation=dilation, before=-form.const)
        if dilation < 0 and step == 1:
            return replace(made, stride=stride, dilation=-dilation, before=form.const, transposed=True)
        return None

    # ---- the condition
    def _forms(self, w: Window) -> list[Linear]:
        """What is at most 0 for positions inside of the image, in each form that a spec may write."""
        index = self.image.index[w.dim]
        forms, whole = [(divided(index), w.size)], linear(index)
        if isinstance(index, Op) and index.op == "floordiv":
            whole = linear(index.args[0])
            forms.append((whole, w.stride * w.size))
        return [x for f, n in forms for x in (ZERO - f, f.shift(1 - n))]

    def _excludes_outside(self, c: Expr, windows: Sequence[Window]) -> bool:
        found = excess(c)
        is_order = isinstance(c, Op) and c.op != "eq"
        return any(found in self._forms(w) if is_order else self._exact(w, c) for w in windows)

    def _exact(self, w: Window, c: Expr) -> bool:
        """Whether ``c`` says that the division in the index of ``w`` has no rest."""
        match c, self.image.index[w.dim]:
            case Op(op="eq", args=(Op(op="mod", args=(a, Const(value=n))), Const(value=0))), Op(
                op="floordiv", args=(b, _)
            ):
                return int(n) == w.stride and linear(a) == linear(b)
        return False

    def _is_exact(self, w: Window, conditions: Sequence[Expr]) -> bool:
        return w.stride == 1 or any(self._exact(w, c) for c in conditions)

    # ---- channels
    def _arranged(
        self, windows: Sequence[Window], plain: Sequence[tuple[int, str]], channels: Sequence[int]
    ) -> Convolution | None:
        named = self._named(windows, channels)
        if named is None:
            return None
        roles, outputs = named
        indices = [self.image.index[p] for p in channels]
        own = [_parts(i, roles) for i in indices]
        order = sorted(range(len(channels)), key=lambda n: (own[n] or [("", 0)])[0][0] != _GROUP)
        sizes = [self.shapes[self.image.buffer][p] for p in channels]
        if any(o is None or prod(s for _, s in o) != n for o, n in zip(own, sizes, strict=True)):
            return None
        groups, channels_in = ([r for n in order for r in own[n] or () if r[0] == kind] for kind in (_GROUP, _IN))
        flat = [r for n in order for r in own[n] or ()]
        if flat != [*groups, *channels_in] or len(groups) > 1 or len(channels_in) > 1:
            return None
        first = (_GROUP, _IN, _OUT) if windows[0].transposed else (_GROUP, _OUT, _IN)
        wanted = [*first, *(w.tap for w in windows if w.tap)]
        dims = [_parts(i, roles) for i in self.filter.index]
        shape = self.shapes[self.filter.buffer]
        if any(d is None or prod(s for _, s in d) != n for d, n in zip(dims, shape, strict=True)):
            return None
        parts = [r for d in dims for r in d or ()]
        have = [n for n, _ in parts]
        size = {_GROUP: 1, _OUT: 1, _IN: 1} | {n: s for r in roles.values() for n, s in r}
        if sorted(have) != sorted(n for n in wanted if n in have) or any(n not in have and size[n] > 1 for n in wanted):
            return None
        heads = (size[first[0]] * size[first[1]], size[first[2]])
        return Convolution(
            image=self.image,
            filter=self.filter,
            windows=tuple(windows),
            image_order=(*(p for p, _ in plain), *(channels[n] for n in order), *(w.dim for w in windows)),
            batch=tuple((n, self.extents[n]) for _, n in plain),
            groups=size[_GROUP],
            channels=size[_IN],
            parts=tuple(s for _, s in parts),
            filter_order=tuple(have.index(n) for n in wanted if n in have),
            filter_shape=(*heads, *(w.taps for w in windows)),
            outputs=tuple((n, self.extents[n]) for n in outputs),
        )

    def _named(
        self, windows: Sequence[Window], channels: Sequence[int]
    ) -> tuple[dict[Expr, tuple[Role, ...]], list[str]] | None:
        """The roles of variables and quotients in the indices of channels, and the output's indices of channels."""
        taps = {w.tap: w.taps for w in windows if w.tap}
        used = frozenset[str]().union(*(free_vars(self.image.index[p]) for p in channels))
        own = free_vars(self.filter)
        roles: dict[Expr, tuple[Role, ...]] = {Var(n): ((n, s),) for n, s in taps.items()}
        summed = [n for n in self.reduced if n not in taps]
        roles |= {Var(n): ((_IN, self.reduced[n]),) for n in summed}
        shared = [n for n in self.extents if n in used and n in own]
        free = [n for n in self.extents if n in own and n not in used]
        if len(summed) > 1 or len(shared) > 1 or len(free) > 1 or not used <= {*summed, *shared}:
            return None
        quotients = {q for p in channels for q in _quotients(self.image.index[p], shared)}
        if quotients:
            (k,) = shared
            n = quotients.pop()
            if quotients or free or n < 1 or self.extents[k] % n:
                return None
            groups, out = (_GROUP, self.extents[k] // n), (_OUT, n)
            roles[Var(k)], by = (groups, out), Const(n, Var(k).dtype)
            roles[Op("floordiv", (Var(k), by), by.dtype)] = (groups,)
            roles[Op("mod", (Var(k), by), by.dtype)] = (out,)
            return roles, [k]
        roles |= {Var(n): ((_GROUP, self.extents[n]),) for n in shared}
        roles |= {Var(n): ((_OUT, self.extents[n]),) for n in free}
        return roles, [*shared, *free]


def _quotients(index: Expr, names: Collection[str]) -> Iterator[int]:
    for n in walk(index):
        match n:
            case Op(op="floordiv", args=(Var(name=name), Const(value=by))) if name in names:
                yield int(by)


def _parts(index: Expr, roles: Mapping[Expr, tuple[Role, ...]]) -> list[Role] | None:
    """The roles of an index that counts through all values of them, the slowest one first; None if it does not."""
    form = linear(index)
    step, found = 1, list[Role]()
    for atom, c in sorted(form.terms.items(), key=lambda t: (t[1], _values(t[0], roles) != 1)):
        if atom not in roles or c != step:
            return None
        found[:0] = roles[atom]
        step *= _values(atom, roles)
    return None if form.const else found


def _values(atom: Expr, roles: Mapping[Expr, tuple[Role, ...]]) -> int:
    """The number of values of ``atom``."""
    return prod(s for _, s in roles.get(atom, ()))
