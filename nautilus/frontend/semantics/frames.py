"""Scopes for the lookup of index variables, arguments and conditions during the expansion of functions.

A :class:`Frame` is one scope: the definition's own, or one call of a function.  Arguments are kept
unevaluated with the frame of their caller (call by name), because a reduction in the function's
body may bind the caller's index variable anew: in ``softmax[j | c](x)`` the body's ``max[j | c](x)``
means "the caller's ``x`` and ``c`` at another ``j``".  A function's formal index is a *link* to the
caller's variable, and binding a link rebinds that variable in the caller's frame (:func:`bind`).
Variables that a function binds for itself are in its own frame, where the arguments cannot see
them: expansion is hygienic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace

from nautilus.core.expr.nodes import Expr, Op, Var
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.frontend.semantics.symbols import Size
from nautilus.frontend.semantics.typed import Fault
from nautilus.frontend.syntax import ast


@dataclass(frozen=True, slots=True)
class Use:
    """An index position that consists of one variable, and the size of that dimension.

    ``in_end``: it stands in an end of a range ``lo .. hi``, where ``start[b] .. start[b + 1]`` is usual.
    """

    size: Size
    span: Span
    where: str
    in_end: bool = False


@dataclass(eq=False, slots=True)
class Bound:
    """A bound index variable.

    ``var`` has a name that is unique in the definition.  The ``uses``, collected during expansion, determine the range
    unless it is ``written``.  Where there are none, it is that of the variable from which this one is inherited, or
    the end of the range ``lo .. hi`` of its binder, if that is a size (``between``).  ``near`` is the size of the first
    dimension in which a computed position moves with the variable, for a hint.
    """

    name: str
    var: Var
    span: Span
    written: Size | None = None
    inherit: Bound | None = None
    uses: list[Use] = field(default_factory=list)
    between: Size | None = None
    near: Size | None = None

    def hint(self, dims: Collection[str]) -> str:
        """How to write the range, which cannot be inferred, with one of the ``dims`` of the spec."""
        return range_hint(self.name, dims) if self.near is None else f"write its range: [{self.name}: {self.near.name}]"

    def deciding(self) -> list[Use]:
        """The uses that must agree: those in ends of ranges decide where there are no others."""
        return [u for u in self.uses if not u.in_end] or self.uses[:1]

    def size(self) -> Size | None:
        """The range as far as it is known."""
        if self.written is not None:
            return self.written
        if self.uses:
            return self.deciding()[0].size
        inherited = self.inherit.size() if self.inherit is not None else None
        return self.between if inherited is None else inherited


def range_hint(name: str, dims: Collection[str]) -> str:
    """How to write the range of the index ``name``: with the dim that is its capital, else N or the last dim."""
    likely = [name.upper(), "N", *reversed([*dims])]
    return f"write its range: [{name}: {next((d for d in likely if d in dims), 'N')}]"


def moving(e: Expr) -> frozenset[str]:
    """The variables by whose steps the position ``e`` moves by one element, such as ``i`` in ``(i + 2 * k) % N``."""
    match e:
        case Var(name=name):
            return frozenset((name,))
        case Op(op="add" | "min" | "max", args=(a, b)):
            return moving(a) | moving(b)
        case Op(op="sub" | "mod", args=(a, _)):
            return moving(a)
    return frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """A scope; compared by identity, so expansions can be remembered by frame."""

    locals: Mapping[str, Bound] = field(default_factory=dict)
    function: ast.Function | None = None
    links: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranges: Mapping[str, ast.Expr] = field(default_factory=dict)
    args: Mapping[str, ast.Expr] = field(default_factory=dict)
    cond: ast.Expr | None = None
    caller: Frame | None = None
    site: Span | None = None

    def lookup(self, name: str) -> Bound | None:
        """The index variable that ``name`` means here, if any."""
        if name in self.locals:
            return self.locals[name]
        if name in self.links and self.caller is not None and len(self.links[name]) == 1:
            return self.caller.lookup(self.links[name][0])
        return None

    def roots(self, name: str) -> tuple[str, ...]:
        """The names that ``name`` links to in the outermost frame (itself where it links nowhere)."""
        if name not in self.locals and name in self.links and self.caller is not None:
            return tuple(r for n in self.links[name] for r in self.caller.roots(n))
        return (name,)

    def visible(self) -> list[str]:
        """Names that may be used here, for hints."""
        cond = self.function.cond if self.function else None
        return [*self.locals, *self.links, *self.args, *((cond.id,) if cond else ())]

    def bind(self, name: str, variables: list[Bound]) -> Frame:
        """This frame with ``name`` (each variable it links to) bound to ``variables``, in order."""
        if name not in self.locals and name in self.links and self.caller is not None:
            caller, targets = self.caller, self.links[name]
            if len(targets) == 1:  # its roots, which are as many as the variables, need not be counted
                return replace(self, caller=caller.bind(targets[0], variables))
            for target in targets:
                count = len(caller.roots(target))
                caller, variables = caller.bind(target, variables[:count]), variables[count:]
            return replace(self, caller=caller)
        return replace(self, locals={**self.locals, name: variables[0]})

    def range_of(self, name: str) -> list[ast.Expr | None]:
        """The ranges written at the calls for the variables that ``name`` links to."""
        if name not in self.locals and name in self.links and self.caller is not None:
            out: list[ast.Expr | None] = []
            for target in self.links[name]:
                inner = self.caller.range_of(target)
                own = self.ranges.get(target)
                out += [own if own is not None and len(inner) == 1 else r for r in inner]
            return out
        return [None]


def link(
    function: ast.Function, binders: tuple[ast.Binder, ...], cond: ast.Expr | None, span: Span
) -> dict[str, tuple[str, ...]]:
    """The variables of the caller for each formal index of ``function``. Raises Fault."""
    name, formals = function.name.id, [n.id for n in function.indices]
    if binders and not formals:
        raise Fault("N0213", f"'{name}' takes no index variables", span, f"write '{name}(...)'")
    if formals and not binders:
        raise Fault("N0213", f"'{name}' needs index variables", span, f"write '{name}[j](...)'")
    if cond is not None and function.cond is None:
        raise Fault("N0213", f"'{name}' takes no condition", span)
    seen: set[str] = set()
    for b in binders:
        if b.name in seen:
            raise Fault("N0306", f"'{b.name}' is bound twice", b.span)
        seen.add(b.name)
    if len(formals) == 1:
        return {formals[0]: tuple(b.name for b in binders)}
    if len(formals) != len(binders):
        raise Fault("N0213", f"'{name}' takes {len(formals)} index variables, but got {len(binders)}", span)
    return {f: (b.name,) for f, b in zip(formals, binders, strict=True)}
