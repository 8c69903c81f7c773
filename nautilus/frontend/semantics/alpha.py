"""Alpha renaming: gives bound variables their final names, and equal sub-expressions one node.

The expansion of a function may contain the same ``max`` twice, over variables with different names.  First the
variables of every reduction are named by its height, so that reductions which are equal up to renaming become equal.
Then all equal nodes become one object.  Finally each distinct reduction gets readable names that occur nowhere else
in the definition: ``j``, ``j_1``, ``j_2``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Param, Reduce, Ref, Var, children, with_children
from nautilus.core.text.names import unused


class _Interner:
    """One object for each distinct expression; keys hold ids of children interned before."""

    def __init__(self) -> None:
        self.table: dict[Any, Expr] = {}
        self.free: dict[int, frozenset[str]] = {}
        self.height: dict[int, int] = {}  # of reductions, the innermost being 1
        self.depth: dict[int, int] = {}
        self.size: dict[int, int] = {}  # nodes of the expression written out as a tree
        self.names: dict[int, tuple[str, ...]] = {}  # of a reduction's variables, as in the source

    def add(self, e: Expr) -> Expr:
        """The representative of ``e``, whose children are representatives already."""
        kids = children(e)
        key = (*_label(e), tuple(id(k) for k in kids))
        if key in self.table:
            return self.table[key]
        self.table[key] = e
        free = frozenset[str]().union(*(self.free[id(k)] for k in kids))
        height = max((self.height[id(k)] for k in kids), default=0)
        if isinstance(e, Var):
            free = frozenset({e.name})
        if isinstance(e, Reduce):
            free, height = free - {a.name for a in e.axes}, height + 1
        self.free[id(e)], self.height[id(e)] = free, height
        self.depth[id(e)] = 1 + max((self.depth[id(k)] for k in kids), default=0)
        self.size[id(e)] = 1 + sum(self.size[id(k)] for k in kids)
        return e


def _label(e: Expr) -> tuple[Any, ...]:
    match e:
        case Const(value=value, dtype=dtype):
            return ("const", repr(value), dtype)
        case Var(name=name) | Ref(name=name):
            return ("var", name)
        case Param(name=name):
            return ("param", name)
        case Load(buffer=buffer):
            return ("load", buffer)
        case Op(op=op, dtype=dtype):
            return ("op", op, dtype)
        case Reduce(op=op, axes=axes, cond=cond):
            return ("reduce", op, axes, cond is None)


def tidy(e: Expr, names: Mapping[str, str], taken: Collection[str]) -> tuple[Expr, int, int]:
    """``e`` with shared nodes and final variable names, its height and its size as a tree.

    ``names`` maps the unique variables (``%0``) to their names in the source; ``taken`` are names
    that no reduction's variable may get (the definition's own axes, and every global name).
    """
    interner = _Interner()
    root = _intern(e, interner, {}, names)
    depth, size = interner.depth[id(root)], interner.size[id(root)]
    return _rename(root, {}, interner, set(taken), {}), depth, size


def _intern(e: Expr, interner: _Interner, memo: dict[int, Expr], names: Mapping[str, str]) -> Expr:
    """Intern bottom-up, naming each reduction's variables by its height."""
    if id(e) in memo:
        return memo[id(e)]
    kids = tuple(_intern(k, interner, memo, names) for k in children(e))
    built = with_children(e, kids)
    label: tuple[str, ...] = ()
    if isinstance(built, Reduce):
        height = 1 + max(interner.height[id(k)] for k in kids)
        env: dict[str, Expr] = {}
        axes = []
        for n, axis in enumerate(built.axes):
            name = f"%{height}.{n}"
            env[axis.name] = Var(name, span=axis.span)
            axes.append(replace(axis, name=name))
        label = tuple(names[a.name] for a in built.axes)
        swapped: dict[int, Expr] = {}
        kids = tuple(_swap(k, env, interner, swapped) for k in kids)
        built = with_children(replace(built, axes=tuple(axes)), kids)
    memo[id(e)] = interner.add(built)
    if label:
        interner.names.setdefault(id(memo[id(e)]), label)
    return memo[id(e)]


def _swap(e: Expr, env: Mapping[str, Expr], interner: _Interner, memo: dict[int, Expr]) -> Expr:
    """Substitute variables in an interned expression, keeping it interned."""
    if not interner.free[id(e)] & env.keys():
        return e
    if id(e) not in memo:
        if isinstance(e, Var):
            memo[id(e)] = interner.add(env[e.name])
        else:
            kids = tuple(_swap(k, env, interner, memo) for k in children(e))
            memo[id(e)] = interner.add(with_children(e, kids))
            if isinstance(e, Reduce):
                interner.names.setdefault(id(memo[id(e)]), interner.names[id(e)])
    return memo[id(e)]


def _rename(e: Expr, env: Mapping[str, str], interner: _Interner, used: set[str], out: dict[Any, Expr]) -> Expr:
    """Final names; a node is renamed once for each meaning of its free variables."""
    key = (id(e), tuple(sorted((v, env[v]) for v in interner.free[id(e)] if v in env)))
    if key in out:
        return out[key]
    inner = dict(env)
    built = e
    if isinstance(e, Var):
        built = replace(e, name=env.get(e.name, e.name))
    elif isinstance(e, Reduce):
        axes: list[Axis] = []
        for axis, name in zip(e.axes, interner.names[id(e)], strict=True):
            inner[axis.name] = _pick(name, used)
            axes.append(replace(axis, name=inner[axis.name]))
        built = replace(e, axes=tuple(axes))
    kids = tuple(_rename(k, inner, interner, used, out) for k in children(e))
    out[key] = with_children(built, kids)
    return out[key]


def _pick(name: str, used: set[str]) -> str:
    """``name``, or ``name_1``, ``name_2``, ... : the first that is free; marks it used."""
    new = unused(name, used)
    used.add(new)
    return new
