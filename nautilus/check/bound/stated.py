"""The bound that the compiler states for a spec; the docstring of the package has the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from nautilus.check.bound.bound import Bound
from nautilus.check.bound.cancelling.decisions import is_decided
from nautilus.check.bound.cancelling.positions import depends, marked_orders
from nautilus.check.bound.choices import roundings
from nautilus.check.bound.exactness import inexact, is_inexact_number, rounds_at_store
from nautilus.check.bound.program import grows_in_chunks, has_recurrences, in_chunks, rounded
from nautilus.check.bound.sampling import RUNTIME, figures
from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Load, Op, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.schedule import Schedule
from nautilus.frontend.fixed import at_sizes
from nautilus.frontend.spec import Spec, Tensor

_TO_INTEGERS = frozenset(n for n, f in FUNCTIONS.items() if f.is_rounding)
_LAST = _TO_INTEGERS | {"cast", "min", "max"}  # operations that a rounded integer may go through
_INEXACT = frozenset(f.name for f in FUNCTIONS.values() for a in f.approximations if a.form_error)


def stated(spec: Spec, precision: str = "fast", schedule: Schedule | None = None) -> dict[str, Bound]:
    """The bound of every output of ``spec`` on standard normal inputs at its declared sizes."""
    options = Schedule() if schedule is None else schedule
    choices = Schedule(
        inline=options.inline, factor=options.factor, narrow=options.narrow,
        narrow_to_bytes=options.narrow_to_bytes, decompose_operands=options.decompose_operands, splits=options.splits,
    )  # fmt: skip
    kernels = frozenset(op for k in options.kernels for op in k.ops)
    unnamed = replace(spec, name="")  # the same for the spec of a check, which has a name of its own
    return dict(_stated(unnamed, precision, choices, kernels))


@lru_cache(maxsize=64)
def _stated(spec: Spec, precision: str, schedule: Schedule, kernels: frozenset[str]) -> Mapping[str, Bound]:
    """``kernels``: the definitions of the kernels that ``schedule`` is of."""
    program = rounded(spec, precision, schedule, kernels)
    computed = roundings(program, precision).computed
    exact = {d.name: _is_exact(program, d.name, computed) for d in program.definitions}
    rounded_numbers = {t.name for t in spec.outputs if _rounds_numbers(program, t.name)}
    wanted = [t for t in spec.outputs if t.dtype.is_float and (not exact[t.name] or t.name in rounded_numbers)]
    chunked = in_chunks(program, spec, precision, schedule)
    grows = chunked is not program and grows_in_chunks(spec)
    shown = chunked if grows else program
    found = _bounds(shown, precision, tuple(wanted), _of_roundings(schedule, shown))
    if chunked is not program and not grows:
        more = _chunk_errors(chunked, precision, tuple(wanted), _of_roundings(schedule, chunked))
        found = {n: replace(b, relative=b.relative + more.get(n, 0.0)) for n, b in found.items()}
    _, few = marked_orders(at_sizes(program, program.samples(RUNTIME)))
    out: dict[str, Bound] = {}
    for t in spec.outputs:
        if not t.dtype.is_float:
            ties = not exact[t.name]
            out[t.name] = Bound(0.0, ties, one_off=ties and _rounds_last(program, t.name, computed))
        else:
            form = precision == "fast" and t.name in found and any(_has_form(d.expr) for d in spec.definitions)
            decided = not exact[t.name] and is_decided(program, t.name, computed)
            decided = decided or depends(program, t.name, few)
            out[t.name] = replace(found.get(t.name, Bound(0.0)), form=form, decided=decided)
    return out


def _of_roundings(schedule: Schedule, program: Spec) -> Schedule:
    """What roundings of ``program`` depend on in ``schedule``: others that agree in it have the same errors."""
    names = {d.name for d in program.definitions}
    splits = tuple(s for s in schedule.splits or () if s.op in names)
    return Schedule(decompose_operands=schedule.decompose_operands, splits=splits)


@lru_cache(maxsize=64)
def _chunk_errors(
    chunked: Spec, precision: str, wanted: tuple[Tensor, ...], schedule: Schedule
) -> Mapping[str, float]:  # fmt: skip
    from nautilus.check.bound.recurrences.recurrent import chunk_errors

    return chunk_errors(chunked, precision, wanted, schedule)


@lru_cache(maxsize=64)
def _bounds(
    program: Spec, precision: str, wanted: tuple[Tensor, ...], schedule: Schedule
) -> Mapping[str, Bound]:  # fmt: skip
    """The bounds of the outputs ``wanted``, which are floats and not exact."""
    if not has_recurrences(program):
        return figures(program, precision, wanted, schedule) if wanted else {}
    from nautilus.check.bound.recurrences.recurrent import following_outputs, recurrent_bounds

    recurrent = following_outputs(program)
    follow = [t for t in wanted if t.name in recurrent]
    plain = [t for t in wanted if t.name not in recurrent]
    others = replace(program, outputs=tuple(t for t in program.outputs if t.name not in recurrent))
    out = figures(others, precision, plain, schedule) if plain else {}
    if follow:
        out |= recurrent_bounds(program, precision, follow, schedule)
    return out


def _is_exact(program: Spec, name: str, computed: frozenset[str]) -> bool:
    """Whether no rounding lies between the inputs and the values of ``name``."""
    d = program.definition(name)
    loads = {e.buffer for e in walk(d.expr) if isinstance(e, Load)}
    return not (loads & computed or any(inexact(e) for e in walk(d.expr)) or rounds_at_store(program, d))


def _rounds_numbers(program: Spec, name: str) -> bool:
    """Whether an output may be a number of the spec that its type does not have, such as 0.1."""
    d = program.definition(name)
    return d.stored.is_float and any(is_inexact_number(e, d.stored) for e in walk(d.expr))


def _rounds_last(program: Spec, name: str, computed: frozenset[str]) -> bool:
    """Whether ``name`` has integers of at most 16 bits, each a computed float that is rounded once, at the end."""
    d = program.definition(name)
    e, last = d.expr, False
    while isinstance(e, Op) and e.op in _LAST:
        last = last or (e.dtype.is_int and e.args[0].dtype.is_float) or e.op in _TO_INTEGERS
        rest = e.args[1:]
        if any(not isinstance(x, Const) for x in rest):
            break
        e = e.args[0]
    return last and d.stored.is_int and d.stored.bits <= 16 and not _decides(program, e, computed)


def _decides(program: Spec, e: Expr, computed: frozenset[str]) -> bool:
    """Whether computed floats decide about the value of ``e`` or of what it reads, by a comparison or by a rounding."""
    operations = [n for n in walk(e) if isinstance(n, Op)]
    discrete = [n for n in operations if n.op in COMPARISONS | _TO_INTEGERS or not n.dtype.is_float]
    if any(inexact(x) or (isinstance(x, Load) and x.buffer in computed) for n in discrete for x in walk(n)):
        return True
    read = {n.buffer for n in walk(e) if isinstance(n, Load) and n.buffer in computed}
    return any(_decides(program, program.definition(x).expr, computed) for x in read)


def _has_form(e: Expr) -> bool:
    return any(isinstance(n, Op) and n.op in _INEXACT for n in walk(e))
