"""Scopes for the lookup of index variables, arguments and conditions during the expansion of functions.

A :class:`Frame` is one scope: the definition's own, or one call of a function.  Arguments are kept
unevaluated with the frame of their caller (call by name), because a reduction in the function's
body may bind the caller's index variable anew: in ``softmax[j | c](x)`` the body's ``max[j | c](x)``
means "the caller's ``x`` and ``c`` at another ``j``".  A function's formal index is a *link* to the
caller's variable, and binding a link rebinds that variable in the caller's frame (:func:`bind`).
Variables that a function binds for itself live in its own frame, where the arguments cannot see
them: expansion is hygienic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nautilus.core.expr.nodes import Var
from nautilus.core.source import Span
from nautilus.frontend.semantics.symbols import Size
from nautilus.frontend.syntax import ast


@dataclass(frozen=True, slots=True)
class Use:
    """An index position that consists of one variable, and the size of that dimension."""

    size: Size
    span: Span
    where: str


@dataclass(eq=False, slots=True)
class Bound:
    """A bound index variable.

    ``var`` has a name that is unique in the definition.  The ``uses``, collected during expansion, determine the range
    unless it is ``written``.
    """

    name: str
    var: Var
    span: Span
    written: Size | None = None
    inherit: Bound | None = None
    uses: list[Use] = field(default_factory=list)

    def size(self) -> Size | None:
        """The range as far as it is known."""
        if self.written is not None:
            return self.written
        if self.uses:
            return self.uses[0].size
        return self.inherit.size() if self.inherit is not None else None


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
            caller = self.caller
            for target in self.links[name]:
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
