"""Evaluation of expressions without loads at many points at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nautilus.core.expr.nodes import Const, Expr, Op, Param, Var
from nautilus.core.numerics import eval_quietly
from nautilus.core.text.expressions import format_expr


def _unknown(e: Expr) -> Any:
    raise KeyError(e.name if isinstance(e, Var | Param) else format_expr(e))


def evaluate(e: Expr, env: Mapping[str, Any], otherwise: Callable[[Expr], Any] = _unknown) -> Any:
    """The value of ``e`` at the values of ``env``, which are numpy arrays that broadcast.

    ``otherwise`` gives the value of a variable that is not in ``env``, and of an expression that is no operation.  The
    default raises KeyError with its name or its text.
    """
    if type(e) is not Op:
        return _value(e, env, otherwise, {})
    with np.errstate(all="ignore"):
        return _value(e, env, otherwise, {})


def _value(e: Expr, env: Mapping[str, Any], otherwise: Callable[[Expr], Any], known: dict[int, Any]) -> Any:
    """``known``: the values of operations, which may stand in several others, by identity."""
    if type(e) is Op:
        found = known.get(id(e))
        if found is None:
            args = [_value(a, env, otherwise, known) for a in e.args]
            found = known[id(e)] = eval_quietly(e.op, args, e.dtype)
        return found
    if type(e) is Const:
        return np.asarray(e.value)
    if isinstance(e, Var | Param) and e.name in env:
        return env[e.name]
    return otherwise(e)
