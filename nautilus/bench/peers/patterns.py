"""Library functions of torch, each with the specs that it computes (:mod:`.algebra`).

Larger patterns come first.  A pattern is tried only where the outermost operation agrees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from nautilus.bench.peers.algebra import SIZE, Found, template, unify
from nautilus.core.expr.nodes import Expr, Op, Reduce, free_vars
from nautilus.core.records import dataclass


@dataclass(frozen=True)
class Pattern:
    """A ``spec`` over X[i, j] or X[i] and its library call.  ``last``: the axis must be the last one."""

    spec: str
    call: str
    last: bool = False
    reduces: bool = False


@dataclass(frozen=True)
class Call:
    """A match: text with ``{X}``, ``{C}``, ``{axis}`` and so on for operands (expressions) and numbers."""

    text: str
    operands: Mapping[str, Expr]
    numbers: Mapping[str, Expr]
    axis: str
    last: bool
    reduces: bool


#: declarations for the line of a pattern, which need not use all of them
_HEAD = f"""dim M = 7, N = {SIZE}
scalar eps: f32
input X: f32[M, N]
input C: bool[M, N]
input W: f32[N]
input Z: f32[N]
output """
_OUTPUTS = {"Y": "Y: f32[M, N]", "R": "R: f32[M]"}
PATTERNS = (
    Pattern("Y[i, j] = layer_norm[j](X[i, j], eps) * W[j] + Z[j]",
            "torch.nn.functional.layer_norm({X}, ({size},), {W}, {Z}, {eps})", last=True),
    Pattern("Y[i, j] = layer_norm[j](X[i, j], eps)",
            "torch.nn.functional.layer_norm({X}, ({size},), eps={eps})", last=True),
    Pattern("Y[i, j] = rms_norm[j](X[i, j], eps) * W[j]",
            "torch.nn.functional.rms_norm({X}, ({size},), {W}, {eps})", last=True),
    Pattern("Y[i, j] = rms_norm[j](X[i, j], eps)",
            "torch.nn.functional.rms_norm({X}, ({size},), eps={eps})", last=True),
    Pattern("Y[i, j] = softmax[j | C[i, j]](X[i, j])",
            "torch.softmax({X}.masked_fill(~{C}, float('-inf')), {axis})"),
    Pattern("Y[i, j] = softmax[j](X[i, j])", "torch.softmax({X}, {axis})"),
    Pattern("Y[i, j] = log_softmax[j](X[i, j])", "torch.log_softmax({X}, {axis})"),
    Pattern("R[i] = logsumexp[j](X[i, j])", "torch.logsumexp({X}, {axis})", reduces=True),
    Pattern("Y[i, j] = gelu_tanh(X[i, j])", "torch.nn.functional.gelu({X}, approximate='tanh')"),
    Pattern("Y[i, j] = gelu(X[i, j])", "torch.nn.functional.gelu({X})"),
    Pattern("Y[i, j] = silu(X[i, j])", "torch.nn.functional.silu({X})"),
    Pattern("Y[i, j] = relu(X[i, j])", "torch.relu({X})"),
)  # fmt: skip


def library_call(e: Expr, names: Sequence[str]) -> Call | None:
    """The call that computes ``e``, whose index variables are among ``names``; None without a match."""
    if not isinstance(e, Op) or e.op not in _roots():
        return None
    for pattern in PATTERNS:
        root = compiled(pattern.spec)
        if not isinstance(root, Op) or root.op != e.op:
            continue
        made = _match(pattern, root, e, names)
        if made is not None:
            return made
    return None


def _match(pattern: Pattern, root: Expr, e: Expr, names: Sequence[str]) -> Call | None:
    pointwise = not any(word in pattern.spec for word in ("[j]", "[j |"))
    inner = free_vars(e)
    candidates = [""] if pointwise or pattern.reduces else [n for n in names if n in inner]
    for axis in candidates:
        found: Found = {}
        if not unify(root, e, {"j": axis} if axis else {}, found) or "X" not in found:
            continue
        where = axis or (found["X"].names[0] if found["X"].names else "")
        operands = {n: c.expr for n, c in found.items() if n in ("X", "C", "W", "Z")}
        numbers = {n: c.expr for n, c in found.items() if n == "eps"}
        return Call(pattern.call, operands, numbers, where, pattern.last, pattern.reduces)
    return None


@lru_cache(maxsize=64)
def compiled(line: str) -> Expr:
    """The expression of the line of a pattern."""
    return template(f"{_HEAD}{_OUTPUTS[line[0]]}\n{line}\n")


@lru_cache(maxsize=1)
def _roots() -> frozenset[str]:
    return frozenset(r.op for p in PATTERNS if isinstance(r := compiled(p.spec), (Op, Reduce)))
