"""Small sizes for the check of a spec that keep the relations between the spec's own sizes.

* ``odd``: lengths become 130, 77, 333 and so on.  No tile divides them and no vector access is aligned.  The first
  length is larger than the second, so a causal mask leaves rows without any column.
* ``aligned``: lengths become small multiples of 16 and feature sizes stay, so the code paths (MMA instructions, wide
  copies) are those of the declared sizes.
* ``full``: the declared sizes.

A *length* is a dim above 64.  Smaller dims that are neither summed over nor stored last (batch, heads) are divided by a
common power of two, which keeps their ratios.  Candidates that the frontend refuses are dropped.  Where an evaluation
at these sizes is too much work, lengths are smaller, and then all the other sizes too.

A recurrence has 4 or 5 steps, because they run one after another.

A dim that is known only at launch takes the same sizes, with one compilation for all of them.  Where there is one that
is not given, the spec is also checked with all of them 1, and with all of them 0.

All sizes satisfy the facts of the spec: a size becomes the next smaller one that the facts about it alone allow, and
sizes that break a fact about several are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from nautilus.core.errors import NautilusError
from nautilus.core.expr.nodes import Axis, Expr, Param, Reduce, free_vars, walk
from nautilus.core.expr.products import indexed_factors
from nautilus.core.index.sizes import NOMINAL
from nautilus.core.records import dataclass
from nautilus.frontend.fixed import at_sizes
from nautilus.frontend.sizes import nearest
from nautilus.frontend.spec import Definition, Spec

#: Sizes of lengths, and smaller ones where those are too much work.
_ODD = ((130, 77, 333, 45, 201, 99), (45, 33, 77, 21, 51, 39))
_ALIGNED = ((208, 144, 320, 80, 272, 112), (112, 80, 144, 64, 96, 48))
#: Sizes of lengths for passes that begin above those sizes.
_LARGER = ((528, 272, 400, 656, 464, 592), (1040, 784, 912, 1168, 528, 656), (4112, 2064, 1040, 784, 528, 400))
_MORE_WORK = 8_000_000
_WORK = 2_000_000  # operations of an evaluation, of which a check makes about a hundred
_MATRIX = 8  # points of a product of matrices that are as much work as one of something else
_ELEMENTS = 1 << 26  # largest tensor of ``large`` sizes
_LARGE = 80_000_000_000  # largest iteration space of ``large`` sizes, which run once and are mostly matrix products

if TYPE_CHECKING:
    from nautilus.driver import Request

Loader = Callable[[Mapping[str, int]], Spec]
Pool = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """A set of sizes and the spec at these sizes.  ``dims`` holds the values that differ from the declared ones."""

    label: str
    dims: Mapping[str, int]
    spec: Spec

    @property
    def text(self) -> str:
        """The label and the sizes as text, such as ``odd (M=130 N=77)``."""
        return self.label + (f" ({' '.join(f'{k}={v}' for k, v in self.dims.items())})" if self.dims else "")


def variants(load: Loader, fixed: Mapping[str, int], full: bool = False) -> tuple[Variant, ...]:
    """The sizes for the check, smallest first.  ``fixed`` are the sizes of ``--dim``, which stay.

    ``load(dims)`` returns the spec at those sizes; its errors for the declared sizes are raised here.
    """
    spec = load(fixed)
    if full:
        return (Variant("full", {}, spec),)
    out: list[Variant] = []
    for label, pools, made, steps in (("odd", _ODD, _odd, 5), ("aligned", _ALIGNED, _aligned, 4)):
        candidates = chain.from_iterable(made(spec, fixed, pool) for pool in pools)
        few = _few_steps(spec, fixed, chain(candidates, _shrunk(spec, fixed, pools[-1])), steps)
        found = _first(label, (_allowed(spec, c) for c in few), load, fixed)
        if found is not None and all(found.dims != v.dims for v in out):
            out.append(found)
    free = [d.name for d in spec.runtime_dims if d.name not in fixed]
    for label, size in (("one", 1), ("empty", 0)) if free else ():
        dims = {**(out[0].dims if out else {}), **_allowed(spec, dict.fromkeys(free, size))}
        smallest = _first(label, iter([dims]), load, fixed)
        if smallest is not None and all(dims != v.dims for v in out):
            out.append(smallest)
    return tuple(out) or (Variant("full", {}, spec),)


def spec_at(request: Request, dims: Mapping[str, int]) -> Spec:
    """The spec of ``request`` at sizes ``dims``, with its facts."""
    from nautilus.frontend.semantics.check import load_spec, load_text

    assumed = [f.text for f in request.assumed]
    if request.text is not None:
        folder = Path(request.path).parent
        name = str(request.path)
        loose = request.unaligned
        return load_text(
            request.text, name, dims=dims, folder=folder, keep_runtime=True, unaligned=loose, assumed=assumed
        )
    return load_spec(request.path, dims=dims, keep_runtime=True, unaligned=request.unaligned, assumed=assumed)


def larger(load: Loader, fixed: Mapping[str, int]) -> Iterator[Variant]:
    """Sizes as the aligned ones with longer lengths, smallest first, and the declared ones, where an evaluation is not
    too much work.

    The sizes before them divide batch and head counts, and a spec may have no other sizes.
    """
    spec = load(fixed)
    for pool in _LARGER:
        for dims in _few_steps(spec, fixed, _aligned(spec, fixed, pool), 4):
            try:
                sized = load({**fixed, **_allowed(spec, dims)})
            except NautilusError:
                continue
            if work(sized) <= _MORE_WORK:
                yield Variant("larger", _allowed(spec, dims), sized)
                break
    if work(spec) <= _MORE_WORK:
        yield Variant("full", {}, spec)


def large(load: Loader, fixed: Mapping[str, int]) -> Variant:
    """The declared lengths, halved until numpy can evaluate the spec; batch and head counts are divided."""
    spec = load(fixed)
    lengths, _, counts = _groups(spec, fixed)
    values, small = _values(spec), _counts(spec, counts)
    for by in (1, 2, 4, 8, 16, 32, 64):
        dims = small | {n: max(64, values[n] // by) if values[n] > 256 else values[n] for n in lengths}
        try:
            sized = load({**fixed, **dims})
        except NautilusError:
            continue
        whole = at_sizes(sized, sized.samples(NOMINAL))
        shapes = [t.shape for t in whole.inputs] + [d.shape for d in whole.definitions]
        elements = max(prod(n for n in shape if isinstance(n, int)) for shape in shapes)
        if points(sized) <= _LARGE and elements <= _ELEMENTS:
            return Variant("large", dims, sized)
    return Variant("full", {}, spec)


def points(spec: Spec) -> int:
    """The largest iteration space of an expression of ``spec``, reductions included."""
    spec = at_sizes(spec, spec.samples(NOMINAL))
    return max((n for d in spec.definitions for n, _ in _spaces(d)), default=1)


def work(spec: Spec) -> int:
    """The work of an evaluation: the points of all definitions, reductions included."""
    spec = at_sizes(spec, spec.samples(NOMINAL))
    return sum(max(n // _MATRIX if matrix else n for n, matrix in _spaces(d)) for d in spec.definitions)


def _spaces(d: Definition) -> Iterator[tuple[int, bool]]:
    """The points of a definition and of each of its reductions, and whether they are a product of matrices."""
    reductions = [e for e in walk(d.expr) if isinstance(e, Reduce)]
    extents = {a.name: _extent(a) for a in (*d.axes, *(a for e in reductions for a in e.axes))}
    yield prod(extents[a.name] for a in d.axes), False
    for e in reductions:
        matrix = e.op == "sum" and e.cond is None and len(indexed_factors(e.body)) > 1
        yield prod(extents[n] for n in {a.name for a in e.axes} | free_vars(e.body)), matrix


def _extent(a: Axis) -> int:
    assert isinstance(a.extent, int)
    return a.extent


def _allowed(spec: Spec, dims: Mapping[str, int]) -> dict[str, int]:
    """``dims``, each the next smaller size that the facts about it alone allow; at least 1 where it was."""
    known = {d.name: d for d in spec.dims}
    return {n: max(nearest(known[n], v), min(v, known[n].multiple)) for n, v in dims.items()}


def _first(label: str, candidates: Iterator[dict[str, int]], load: Loader, fixed: Mapping[str, int]) -> Variant | None:
    """The first candidate that is not too much work, else the one of the least."""
    best = None
    for dims in candidates:
        try:
            spec = load({**fixed, **dims})
        except NautilusError:
            continue
        if (needed := work(spec)) <= _WORK:
            return Variant(label, dims, spec)
        if best is None or needed < best[0]:
            best = needed, Variant(label, dims, spec)
    return best and best[1]


def _groups(spec: Spec, fixed: Mapping[str, int]) -> tuple[list[str], list[str], list[str]]:
    """Names of free dims: lengths, features (small, summed over or stored last), and the rest."""
    values = {n: v for n, v in _values(spec).items() if n not in fixed}
    late = {d.name for d in spec.runtime_dims}
    tensors = (*spec.inputs, *spec.outputs)
    outer = {_size(s) for t in tensors for s in t.shape[:-1]}
    inner = {_size(s) for t in tensors for s in t.shape[-1:]} - outer
    for d in spec.definitions:
        inner |= {_size(a.extent) for e in walk(d.expr) if isinstance(e, Reduce) for a in e.axes}
    lengths = [n for n, v in values.items() if v > 64]
    features = [n for n, v in values.items() if v <= 64 and (n if n in late else v) in inner and v > 1]
    return lengths, features, [n for n in values if n not in lengths and n not in features]


def _size(size: Expr | int) -> str | int:
    """The key of a size: the name of one that is known only at launch, and the number of another one."""
    return size.name if isinstance(size, Param) else size if isinstance(size, int) else ""


def _values(spec: Spec) -> dict[str, int]:
    return {d.name: d.value for d in spec.dims if d.value is not None} | spec.samples(NOMINAL)


def _counts(spec: Spec, names: list[str]) -> dict[str, int]:
    """Batch and head counts, divided by a common power of two down to about 2."""
    values = {n: v for n, v in _values(spec).items() if n in names}
    large = [v for v in values.values() if v > 2]
    by = 1
    while large and all(v % (2 * by) == 0 and v // (2 * by) >= 2 for v in large):
        by *= 2
    return {n: (v // by if v > 2 else v) for n, v in values.items()}


def _odd(spec: Spec, fixed: Mapping[str, int], pool: Pool) -> Iterator[dict[str, int]]:
    lengths, features, counts = _groups(spec, fixed)
    small = _counts(spec, counts)
    inner = {s for t in (*spec.inputs, *spec.outputs) for s in t.shape[-1:]}
    values = _values(spec)
    kept = {n: v for n, v in values.items() if n in features}
    kept |= {n: 77 for n in lengths if values[n] in inner and values[n] <= 256}  # a feature, not a length
    rest = [n for n in lengths if n not in kept]
    yield small | kept | _alternately(rest, pool)
    if spec.facts:  # such as 'assume M <= N'
        yield small | kept | _alternately(rest, sorted(pool))
    yield small | kept | _by_value(spec, lengths, pool)
    yield small | kept | dict.fromkeys(lengths, pool[1])
    if pool == _ODD[-1]:
        yield from _halved(spec, lengths, small | kept)


def _aligned(spec: Spec, fixed: Mapping[str, int], pool: Pool) -> Iterator[dict[str, int]]:
    lengths, features, counts = _groups(spec, fixed)
    values = _values(spec)
    inner = {s for t in (*spec.inputs, *spec.outputs) for s in t.shape[-1:]}
    kept = {n: values[n] for n in (*features, *lengths) if values[n] in inner and values[n] <= 256}
    free = [n for n in lengths if n not in kept]
    small = _counts(spec, counts)
    for order in (pool, tuple(sorted(pool))):
        yield small | {n: v for n, v in values.items() if n in features} | kept | _alternately(free, order)
        yield small | kept | _by_value(spec, free, order)
    if pool == _ALIGNED[-1]:
        yield from _halved(spec, free, small | kept)


def _shrunk(spec: Spec, fixed: Mapping[str, int], pool: Pool) -> Iterator[dict[str, int]]:
    """Lengths of ``pool``, or in proportion, and all other sizes divided by a power of two."""
    lengths, features, counts = _groups(spec, fixed)
    values = _values(spec)
    for by in (2, 4, 8, 16, 32):
        rest = {n: max(1, values[n] // by) for n in (*features, *counts)}
        yield rest | _alternately(lengths, pool)
        yield rest | _by_value(spec, lengths, pool)
        yield rest | {n: max(1, values[n] // by) for n in lengths}


def _alternately(names: list[str], pool: Sequence[int]) -> dict[str, int]:
    return {n: pool[i % len(pool)] for i, n in enumerate(names)}


def _few_steps(
    spec: Spec, fixed: Mapping[str, int], candidates: Iterator[dict[str, int]], count: int
) -> Iterator[dict[str, int]]:
    """Each of ``candidates`` with ``count`` steps of recurrences, and as it is."""
    whole = at_sizes(spec, spec.samples(NOMINAL))
    steps = {d.axes[d.recurrence.axis].extent for d in whole.definitions if d.recurrence is not None}
    names = [n for n, v in _values(spec).items() if v in steps and v > count and n not in fixed]
    for dims in candidates:
        if names:
            yield dims | dict.fromkeys(names, count)
        yield dims


def _by_value(spec: Spec, names: list[str], pool: Pool) -> dict[str, int]:
    """New sizes such that dims of equal declared size have equal new sizes."""
    values = _values(spec)
    order = list(dict.fromkeys(values[n] for n in names))
    return {n: pool[order.index(values[n]) % len(pool)] for n in names}


def _halved(spec: Spec, names: list[str], rest: dict[str, int]) -> Iterator[dict[str, int]]:
    """All lengths divided by one power of two, which keeps their ratios."""
    values = _values(spec)
    for by in (4, 8, 16, 32, 64, 2):
        if all(values[n] % by == 0 for n in names):
            yield rest | {n: values[n] // by for n in names}
