"""The independent checker of the certificates of rewrites; it shares no code with the passes.

:func:`check` checks the form of both sides where the rule defines it, then decides ``before == after`` where the
conditions hold (:mod:`nautilus.check.validate.identities`).  Reductions are instantiated with few elements; a load is
an unknown number that depends on its indices.  All computation is over the reals, so a permitted ``narrow`` is the
identity; its rule admits it only for a factor that meets a 16-bit or 8-bit operand.  A rounding of the spec that a
permitted one replaces has the rules of that one.

An identity that does not hold everywhere holds on a *domain*, which the verdict names: ``finite`` leaves out inf and
NaN, ``generic`` in addition zeros and equal, huge and tiny numbers, as a rewrite by division needs, and ``positive``
numbers below 0, as a rewrite by a root needs.  Whether the program leaves its domain is decided on the modules
(:mod:`nautilus.check.validate.refinement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, permutations, product

from nautilus.check.validate.identities import DOMAINS, decide
from nautilus.check.validate.sets.counts import counted_terms
from nautilus.check.validate.sets.exact_values import same_values
from nautilus.check.validate.sets.same_terms import same_results, same_terms
from nautilus.check.validate.verdict import Verdict
from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import COMBINERS, Const, Expr, Load, Op, Reduce, Var, rewrite, walk

# the rules whose sides reduce the same terms, at the same places, or at other ones too, and those that count them
_OTHER_AXES = frozenset({"solve-equations", "flatten-positions", "choose-terms"})
_OTHER_PLACES = frozenset({"split-residues", "separate-phases"})
_SETS: Mapping[str, Callable[[Expr, Expr, Mapping[str, Expr], Sequence[Expr], int], Verdict]] = {
    **dict.fromkeys(_OTHER_AXES, same_terms),
    **dict.fromkeys(_OTHER_PLACES, same_results),
    "count-terms": counted_terms,
    "divide-floors": same_values,
}


def check(c: Certificate, seed: int = 0) -> Verdict:
    """The verdict on one certificate; the detail of a proof is its domain."""
    problem = _RULES.get(c.rule, _no_structure)(c)
    if problem:
        return Verdict("refuted", detail=problem)
    if c.rule == "inline":
        tried: list[Verdict] = []
        for before in _inlined(c):
            tried.append(_compare(replace(c, before=before), seed))
            if tried[-1].ok:
                return tried[-1]
        return tried[0]
    if c.rule in _SETS:
        found = _SETS[c.rule](c.before, c.after, dict(c.bindings), c.conditions, seed)
        return replace(found, detail="on the domain everything") if found.status == "proved" else found
    if c.rule == "defer-roundings":
        return _compare(replace(c, before=_permitted(c.before)), seed)
    return _compare(c, seed)


def _compare(c: Certificate, seed: int) -> Verdict:
    """The verdict on the largest domain that has a proof, else on the largest one without a counterexample."""
    tested = None
    for domain in DOMAINS:
        found = decide(c.before, c.after, c.conditions, domain, seed)
        if found.status == "proved":
            return replace(found, detail=f"on the domain {domain}")
        tested = tested or (found if found.status == "tested" else None)
    return tested or found


# -- the form of both sides by rule ------------------------------------------------------------------


def _substituted(e: Expr, env: Mapping[str, Expr]) -> Expr:
    return rewrite(e, lambda n: env.get(n.name) if isinstance(n, Var) else None)


def _at(e: Expr, prefix: str) -> Expr:
    """``e`` with ``r0..`` renamed to ``prefix0..``."""
    names = {n.name for n in walk(e) if isinstance(n, Var) and n.name[0] == "r" and n.name[1:].isdigit()}
    kinds = {n.name: n.dtype for n in walk(e) if isinstance(n, Var)}
    return _substituted(e, {n: Var(prefix + n[1:], kinds[n]) for n in names})


def _rolling_update(c: Certificate) -> str:
    parts = dict(c.bindings)
    if not {"f", "t"} <= parts.keys():
        return "a repair term needs the bindings f and t"
    f, t = parts["f"], parts["t"]
    if c.before != _at(f, "new") or c.after != _substituted(t, {"a": _at(f, "old")}):
        return "the two sides are not f(x, new) and t(f(x, old), old, new)"
    free = {n.name for n in walk(t) if isinstance(n, Var)}
    if any(n.startswith("x") for n in free) or any(isinstance(n, Load | Reduce) for n in walk(t)):
        return "t depends on a summed element"
    return ""


def _distribute(c: Certificate) -> str:
    parts = dict(c.bindings)
    if not {"t", "combined"} <= parts.keys():
        return "distribution needs the bindings t and combined"
    t, both = parts["t"], parts["combined"]
    if not isinstance(both, Op) or both.op not in {k.binary for k in COMBINERS.values()}:
        return "the combined value is not the result of a combiner"
    a, b = both.args
    want = Op(both.op, (_substituted(t, {"a": a}), _substituted(t, {"a": b})), both.dtype)
    if c.before != _substituted(t, {"a": both}) or c.after != want:
        return "the two sides are not t(a + b) and t(a) + t(b)"
    return ""


def _narrow(c: Certificate) -> str:
    """Check that one factor is rounded to a type no narrower than the 16-bit or 8-bit tensor that it meets.

    Or two are, each to a type no narrower than that of an element that it is made from.  An element that the spec
    rounds, that of a typed definition, counts as one of a tensor.
    """
    met = [n for _, e in c.bindings for n in islice(filter(_is_element, _through_casts(e)), 1)]
    kind = {name for name, _ in c.bindings}
    short = 0 < len(met) == len(c.bindings) and all(n.dtype.bits <= 16 for n in met)
    if not short or kind not in ({"meets"}, {"from"}):
        return "a narrowed factor must meet a 16-bit or 8-bit operand, or two must be made from such tensors"
    sums = [n.body for n in walk(c.after) if isinstance(n, Reduce)]
    whole = sums[0] if sums else c.after
    product = isinstance(whole, Op) and whole.op == "mul" and (bool(sums) or kind == {"from"})
    parts = whole.args if product and isinstance(whole, Op) else (c.after,)
    if kind == {"meets"}:  # the tensor may have the type of the factor, which holds it exactly
        parts = tuple(f for f in parts if met[0] not in _through_casts(f))
    kinds = [n.dtype for f in parts for n in _through_casts(f) if isinstance(n, Op) and n.op == "narrow"]
    if len(kinds) != len(c.bindings) or any(k.bits < n.dtype.bits for k, n in zip(kinds, met, strict=False)):
        return "the factor is not rounded exactly once, or the type is narrower than that of the other factor"
    return ""


def _defer_roundings(c: Certificate) -> str:
    """Check that a factor is rounded once on both sides, to the type of a number of 16 bits that it meets."""
    sides = [[n for n in walk(e) if _is_rounding(n)] for e in (c.before, c.after)]
    kinds = [(n.op, n.dtype) for side in sides for n in side if isinstance(n, Op)]
    met = [n.dtype for name, e in c.bindings for n in _through_casts(e) if name == "meets" and n.dtype.bits <= 16]
    if not met or kinds != [("cast", met[0]), ("narrow", met[0])]:
        return "the factor is not rounded once on each side, to the type of the number that it meets"
    return ""


def _is_rounding(e: Expr) -> bool:
    """Whether ``e`` converts a float to a shorter one."""
    return isinstance(e, Op) and e.op in ("cast", "narrow") and e.dtype.is_float and e.dtype.bits < e.args[0].dtype.bits


def _permitted(e: Expr) -> Expr:
    """``e`` with a rounding that is permitted in the place of one that the spec has."""
    return rewrite(e, lambda n: replace(n, op="narrow") if isinstance(n, Op) and _is_rounding(n) else None)


def _is_element(e: Expr) -> bool:
    """Whether ``e`` is an element of a tensor, or rounded to 16 bits by the spec."""
    return isinstance(e, Load) or (isinstance(e, Op) and e.op == "cast" and e.dtype.is_float and e.dtype.bits <= 16)


def _through_casts(e: Expr) -> Iterator[Expr]:
    yield e
    while isinstance(e, Op) and e.op in ("cast", "narrow", "select", "neg"):
        e = e.args[1] if e.op == "select" else e.args[0]
        yield e


def _inline(c: Certificate) -> str:
    """Check that ``before`` reads the buffer of every binding ``T[...]`` as often as there are bindings."""
    if not c.bindings:
        return "inlining needs the values of the replaced reads"
    for name in {n for n, _ in c.bindings}:
        reads = _reads(c.before, name.removesuffix("[...]"))
        if len(reads) != sum(n == name for n, _ in c.bindings):
            return f"{name} has {len(reads)} reads, which differs from the number of replacements"
    return ""


def _reads(e: Expr, buffer: str) -> tuple[Load, ...]:
    """The reads of ``buffer`` in the order in which ``rewrite`` replaces them, which is that of the bindings."""
    found: dict[Load, None] = {}
    rewrite(e, lambda n: found.setdefault(n) if isinstance(n, Load) and n.buffer == buffer else None)
    return tuple(found)


def _inlined(c: Certificate) -> Iterator[Expr]:
    """``before`` with its reads replaced by the bindings, in their order first, then the first four in every other."""
    names = list(dict.fromkeys(n for n, _ in c.bindings))
    choices = []
    for name in names:
        reads = _reads(c.before, name.removesuffix("[...]"))
        values = [e for n, e in c.bindings if n == name]
        orders = ((*order, *values[4:]) for order in permutations(values[:4]))
        choices.append([dict(zip(reads, order, strict=True)) for order in orders])
    for pick in product(*choices):
        table = {ld: e for part in pick for ld, e in part.items()}
        yield rewrite(c.before, lambda n, t=table: t.get(n) if isinstance(n, Load) else None)  # type: ignore[misc]


def _lazy_rescale(c: Certificate) -> str:
    """Check lazy rescaling: both sides are the value, with its inputs offset and offset as a whole, respectively."""
    parts = dict(c.bindings)
    value = parts.pop("value", None)
    if value is None or not parts:
        return "lazy rescaling needs the value and its offset inputs"
    readings = {n: parts[n.buffer] for n in walk(value) if isinstance(n, Load) and n.buffer in parts}
    if {n.buffer for n in readings} != parts.keys():
        return "an offset input does not occur in the value"
    if any(_offsets(to, n) is None for n, to in readings.items()) or _offsets(c.after, value) is None:
        return "an input is changed by more than a shift or a power of two"
    if c.before != rewrite(value, lambda n: readings.get(n) if isinstance(n, Load) else None):
        return "the left side is not the value with its inputs offset"
    return ""


def _offsets(moved: Expr, e: Expr) -> set[str] | None:
    """Names of the offsets d if ``moved`` is ``e + w d``, ``e * 2^(w d)`` or ``e``; otherwise None."""
    match moved:
        case _ if moved == e:
            return set()
        case Op(op="add", args=(a, by)) if a == e:
            pass
        case Op(op="mul", args=(a, Op(op="exp2", args=(by,)))) if a == e:
            pass
        case _:
            return None
    if any(not isinstance(n, Const | Op | Var) or (isinstance(n, Op) and n.op not in ("add", "mul")) for n in walk(by)):
        return None
    return {n.name for n in walk(by) if isinstance(n, Var)}


def _no_structure(_: Certificate) -> str:
    return ""


_RULES: Mapping[str, Callable[[Certificate], str]] = {
    "rolling-update": _rolling_update,
    "split-k-update": _rolling_update,
    "distribute": _distribute,
    "narrow": _narrow,
    "defer-roundings": _defer_roundings,
    "inline": _inline,
    "lazy-rescale": _lazy_rescale,
}
