"""Evaluation of expressions without loads at many points at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nautilus.core.expr.nodes import Const, Expr, Op, Param, Var
from nautilus.core.numerics import eval_op
from nautilus.core.text.expressions import format_expr


def _unknown(e: Expr) -> Any:
    raise KeyError(e.name if isinstance(e, Var | Param) else format_expr(e))


def evaluate(e: Expr, env: Mapping[str, Any], otherwise: Callable[[Expr], Any] = _unknown) -> Any:
    """The value of ``e`` at the values of ``env``, which are numpy arrays that broadcast.

    ``otherwise`` gives the value of a variable that is not in ``env``, and of an expression that is no operation.  The
    default raises KeyError with its name or its text.
    """
    match e:
        case Const(value=value):
            return np.asarray(value)
        case Var(name=name) | Param(name=name) if name in env:
            return env[name]
        case Op(op=op, args=args, dtype=dtype):
            return eval_op(op, [evaluate(a, env, otherwise) for a in args], dtype)
    return otherwise(e)
