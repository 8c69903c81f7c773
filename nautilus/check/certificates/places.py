"""Whether the certificate of a rewrite belongs to the step between two modules.

A narrowed factor is in the module before the step, and its narrowed form in the module after it; so do the elements
and the conditions of the two forms of a sum.  Of rewrites that follow each other in one step, a later one starts from
the program that the earlier ones have made: what it starts from stands in their results, or in the module before the
step where readers of a sum have its element.  A sum that lost a factor, ``S[i] = sum(x) * f[i]``, is ``S[i]`` again
where its readers have ``S[k] * f[k]``; where the value is chosen by a condition, a reduction may have that among its
own conditions instead.  The conditions of a repair term hold in the module after the step (``extrema``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace

from nautilus.check.certificates.extrema import unproved
from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Ref, Var, rewrite, substitute, walk
from nautilus.core.records import dataclass
from nautilus.core.text.expressions import format_expr

#: the rules of which both sides stand in the modules of the step, and those of which what is rewritten does
_MOVED = frozenset({"split-residues", "separate-phases", "flatten-positions", "divide-floors"})
_BEGUN = frozenset({"count-terms", "choose-terms"})


def misplaced(
    c: Certificate, before: object, after: object,
    earlier: Sequence[Certificate] = (), later: Sequence[Certificate] = (),
) -> str:  # fmt: skip
    """Why ``c`` does not belong to the step from module ``before`` to module ``after``; '' if it does.

    The subject is a buffer or a value of one of the modules.  ``earlier``, ``later``: the other certificates of the
    step, in the order of the rewrites.
    """
    old, new = Parts.of(before), Parts.of(after)
    if c.subject not in old.names | new.names:
        return f"the modules have no {c.subject}"
    if c.rule in ("rolling-update", "split-k-update", "distribute"):
        return unproved(c, after)
    if c.rule in _MOVED | _BEGUN:
        return _moved(c, old, new, earlier)
    if c.rule not in ("narrow", "factor", "defer-roundings"):
        return ""
    ends = new.expressions.union(*(walk(o.before) for o in later))
    missing = next((part for part in _elements(c.after) if part not in ends), None)
    starts = old.expressions.union(*(walk(o.after) for o in earlier))
    if missing is None and any(part not in starts for part in _elements(c.before)):
        restored = _Restored(earlier, old.places)
        parts = [restored.expression(part) for part in _elements(c.before)]
        missing = next((x for part in parts for x in (part, *_conjuncts(part)) if not restored.known(x, starts)), None)
    return "" if missing is None else f"no statement contains {format_expr(missing)}"


def _moved(c: Certificate, old: Parts, new: Parts, earlier: Sequence[Certificate]) -> str:
    """Why a rewrite of the terms of ``c`` does not start from ``old``, or does not lead to ``new``; '' if it does.

    A number of points stands in the readers of the sum, at their place; a chosen term may be in several definitions.
    """
    starts = old.expressions.union(*(walk(o.after) for o in earlier))
    parts = [(part, starts) for part in _elements(c.before)]
    if c.rule in _MOVED:
        parts += [(part, new.expressions) for part in _elements(c.after)]
    missing = next((part for part, where in parts if part not in where), None)
    return "" if missing is None else f"no statement contains {format_expr(missing)}"


def _elements(e: Expr) -> Iterator[Expr]:
    """The elements and the conditions of the sums in ``e``; ``e`` itself, a factor, where it has none."""
    sums = [n for n in walk(e) if isinstance(n, Reduce)]
    yield from (part for n in sums for part in (n.body, n.cond) if part is not None)
    if not sums:
        yield e


def _conjuncts(e: Expr) -> tuple[Expr, ...]:
    """The conditions that ``e`` is the conjunction of; () for a single one or another expression."""
    if not (isinstance(e, Op) and e.op == "and"):
        return ()
    return tuple(x for a in e.args for x in (_conjuncts(a) or (a,)))


_PUT_BACK = "'"  # ends the name of a load that stands for a value, so that ``S * f * f`` is not ``S`` at once


@dataclass(frozen=True)
class _Reader:
    """What readers have in the place of ``subject`` at ``axes``: ``value`` where ``condition`` holds, None: always."""

    subject: str
    axes: tuple[str, ...]
    value: Expr
    condition: Expr | None


class _Restored:
    """Expressions as they were before ``earlier`` rewrites; ``places``: the axes at which buffers are stored."""

    def __init__(self, earlier: Sequence[Certificate], places: Mapping[str, tuple[str, ...]]) -> None:
        self.readers = [r for o in reversed(earlier) for r in _readers(o, places)]
        self.conditions: set[Expr] = set()  # of values that were put back

    def expression(self, e: Expr) -> Expr:
        """``e`` with the reads of all subjects that the values of readers were made from."""
        for reader in self.readers:
            e = rewrite(e, lambda n, r=reader: self._read(n, r))  # type: ignore[misc]
            e = rewrite(e, lambda n, r=reader: _named(n, r.subject + _PUT_BACK, r.subject))  # type: ignore[misc]
        return e

    def _read(self, n: Expr, r: _Reader) -> Expr | None:
        if not isinstance(n, Op) or not isinstance(r.value, Op) or n.op != r.value.op:
            return None
        for ld in walk(n):
            if isinstance(ld, Load) and ld.buffer == r.subject and len(ld.index) == len(r.axes):
                env = dict(zip(r.axes, ld.index, strict=True))
                if substitute(r.value, env) == n:
                    self.conditions |= set() if r.condition is None else {substitute(r.condition, env)}
                    return _named(ld, r.subject, r.subject + _PUT_BACK)
        return None

    def known(self, e: Expr, starts: frozenset[Expr]) -> bool:
        """Whether ``e`` is among ``starts`` or a condition of a value that was put back, or a conjunction."""
        return e in starts or e in self.conditions or bool(_conjuncts(e))


def _named(e: Expr, old: str, new: str) -> Expr | None:
    """The load ``e`` of ``old`` as one of ``new``; None for another expression."""
    return replace(e, buffer=new) if isinstance(e, Load) and e.buffer == old else None


def _readers(o: Certificate, places: Mapping[str, tuple[str, ...]]) -> Iterator[_Reader]:
    """What readers of the subject of ``o`` have, as a whole and without the condition that they may have instead."""
    sums = [n for n in walk(o.after) if isinstance(n, Reduce)]
    axes = places.get(o.subject)
    if o.rule not in ("factor", "narrow") or len(sums) != 1 or axes is None:
        return
    load = Load(o.subject, tuple(Var(a) for a in axes), sums[0].dtype)
    whole = rewrite(o.after, lambda n: load if n == sums[0] else None)
    yield _Reader(o.subject, axes, whole, None)
    if isinstance(whole, Op) and whole.op == "select":
        yield _Reader(o.subject, axes, whole.args[1], whole.args[0])


@dataclass(frozen=True)
class Parts:
    """The names of buffers and values of a module, all expressions in it with their parts, and the axes of stores."""

    names: frozenset[str]
    expressions: frozenset[Expr]
    places: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(module: object) -> Parts:
        """The parts of ``module``, a module or a kernel of any level."""
        names: set[str] = set()
        expressions: set[Expr] = set()
        places: dict[str, tuple[str, ...]] = {}
        stack, seen = [module], set[int]()
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Const | Var | Load | Op | Reduce | Param | Ref):
                expressions.update(walk(node))
            elif isinstance(node, tuple):
                stack.extend(node)
            elif is_dataclass(node):
                names |= {v for n in ("name", "buffer") if isinstance(v := getattr(node, n, None), str)}
                buffer, index = getattr(node, "buffer", None), getattr(node, "index", None)
                if isinstance(buffer, str) and isinstance(index, tuple) and all(isinstance(e, Var) for e in index):
                    places[buffer] = tuple(e.name for e in index)
                stack.extend(getattr(node, f.name) for f in fields(node))
        return Parts(frozenset(names), frozenset(expressions), places)
