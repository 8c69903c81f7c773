"""The peers by name: each makes a contender from a spec, or gives the reason why it cannot.

``bench/README.md`` says which call each peer makes.  The calls for attention also take a spec that computes operands
in 16 or 8 bits first (:mod:`.stages`): torch.compile makes a kernel for that part, and both are timed together.

All peers read the same device memory as our kernel.  Values that depend on no input (masks, block masks) and copies of
keys for a library without grouped heads are made before the timing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

from nautilus.bench.contenders import Absent, Contender, NotApplicable, reason_of
from nautilus.bench.peers import attend, convolve
from nautilus.bench.peers.algebra import fold, strip_casts
from nautilus.bench.peers.stages import stages
from nautilus.bench.peers.torch_env import Tensors, bound, define, to_numpy, torch_type
from nautilus.bench.peers.translate import translate
from nautilus.core.expr.nodes import Load, Op, Reduce
from nautilus.core.expr.products import indexed_factors
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.types import HALVES, DType
from nautilus.frontend.restrict import pieces, restrict, shape_of
from nautilus.frontend.spec import Spec

_LARGEST = 1 << 27  # elements of one f64 tensor of the reference
_PRODUCT_CALLS = ("torch.matmul(", "torch.addmm(", "torch._int_mm(")
_CONVOLUTION_CALLS = tuple(f"{kind}{n}d" for kind in ("conv", "conv_transpose") for n in (1, 2, 3))


@dataclass(frozen=True)
class Setting:
    """A spec with its inputs as tensors on ``device``."""

    torch: Any
    spec: Spec
    scalars: Mapping[str, float | int | bool]
    tensors: Mapping[str, Any]
    device: str = "cuda"

    @property
    def arguments(self) -> Tensors:
        """The input tensors in the order of the spec."""
        return tuple(self.tensors[t.name] for t in self.spec.inputs)


Call = Callable[[], Tensors]


def contenders(setting: Setting, names: Sequence[str]) -> list[Contender | Absent]:
    """A contender, or the reason why there is none, for each of ``names``."""
    setting.torch._dynamo.reset()  # earlier compilations count against dynamo's recompilation limit
    out: list[Contender | Absent] = []
    for name in names:
        try:
            if name == "torch" and "cublas" in names and only_products(setting.spec):
                raise NotApplicable("it makes the same calls as cublas")
            call, note = BUILDERS[name](setting)
            out.append(_contender(setting, name, call, note))
        except NotApplicable as error:
            out.append(Absent(name, f"not applicable: {reason_of(error)}"))
        except ImportError as error:
            out.append(Absent(name, f"not installed: {error}"))
        except Exception as error:  # a failing library must not end the run
            out.append(Absent(name, f"failed: {reason_of(error)}"))
    return out


def _contender(setting: Setting, name: str, call: Call, note: str) -> Contender:
    def run() -> None:
        call()

    def result() -> Mapping[str, Array]:
        torch = setting.torch
        outputs = setting.spec.outputs
        # the allocator reuses these blocks, so elements that a call does not write are NaN
        poison = [torch.full((prod(shape_of(t)) * t.dtype.bytes,), 255, dtype=torch.uint8, device=setting.device)
                  for t in outputs]  # fmt: skip
        del poison
        found = call()
        return {t.name: to_numpy(torch, x, t.dtype) for t, x in zip(outputs, found, strict=True)}

    return Contender(name, run, result, note)


# -- the whole spec ------------------------------------------------------------------------------


def _eager(s: Setting) -> tuple[Call, str]:
    main, made = bound(s.torch, translate(s.spec, s.scalars, "native"), s.device)
    arguments = (*s.arguments, *made)
    return (lambda: main(*arguments)), ""


def _compiled(s: Setting) -> tuple[Call, str]:
    main, made = bound(s.torch, translate(s.spec, s.scalars, "native", hoist=False), s.device)
    fast = s.torch.compile(main, dynamic=False, mode="max-autotune-no-cudagraphs")
    arguments = (*s.arguments, *made)
    return (lambda: fast(*arguments)), ""


def only_products(spec: Spec) -> bool:
    """Whether every definition is a sum of products of two tensors, plus at most a tensor."""
    if convolve.convolutions(spec):
        return False
    for d in spec.definitions:
        e = strip_casts(fold(d.expr))
        parts = [strip_casts(a) for a in e.args] if isinstance(e, Op) and e.op == "add" else [e]
        products = [p for p in parts if isinstance(p, Reduce)]
        if len(products) != 1 or any(not isinstance(p, (Reduce, Load)) for p in parts):
            return False
        (p,) = products
        both = indexed_factors(p.body)
        if p.op != "sum" or p.cond is not None or len(both) != 2 or not all(isinstance(f, Load) for f in both):
            return False
    return True


def _cublas(s: Setting) -> tuple[Call, str]:
    if not only_products(s.spec):
        raise NotApplicable("the spec contains more than matrix products with a bias")
    text = translate(s.spec, s.scalars, "native").main
    calls = [c for c in _PRODUCT_CALLS if c in text]
    if not calls or "torch.sum(" in text:
        raise NotApplicable("the sums of the spec are not matrix products")
    return _eager(s)[0], ", ".join(c.rstrip("(") for c in calls)


def _convolution(s: Setting) -> tuple[Call, str]:
    """Convolutions of the library, and what is around them in eager PyTorch.

    The filters are arranged in memory before the timing as the library wants them for these images.
    """
    found = convolve.convolutions(s.spec)
    if not found:
        raise NotApplicable("the spec has no convolution")
    text = translate(s.spec, s.scalars, "native")
    calls = [c for c in _CONVOLUTION_CALLS if f"{c}(" in text.main]
    main, made = bound(s.torch, text, s.device)
    tensors = dict(s.tensors)
    for c in found:
        if c.filter.buffer in tensors:
            tensors[c.filter.buffer] = _filter(tensors[c.filter.buffer], c)
    arguments = (*(tensors[t.name] for t in s.spec.inputs), *made)
    strict = {t.dtype for t in s.spec.inputs} & {DType.F32}
    return (lambda: main(*arguments)), ", ".join([*calls, *(["allow_tf32=False"] if strict else [])])


def _filter(tensor: Any, c: convolve.Convolution) -> Any:
    """``tensor`` with the same dimensions, in memory in the order of the library's filter."""
    if len(c.parts) != tensor.dim():  # a dimension of groups and channels, which the call splits
        return tensor
    order = list(c.filter_order)
    if c.channels_last:  # the channels of the filter that are summed, and those of a transposed one's output
        order = [order[0], *order[2:], order[1]] if len(order) == len(c.filter_shape) else order
    return tensor.permute(order).contiguous().permute([order.index(p) for p in range(len(order))])


# -- fused attention -----------------------------------------------------------------------------


def _operands(s: Setting, a: attend.Attention) -> tuple[Any, Any, Any]:
    return tuple(view(s.tensors[o.name], o) for o in (a.q, a.k, a.v))


def view(tensor: Any, o: attend.Operand) -> Any:
    """``tensor`` as [batch, head, row, inner]."""
    made = tensor.permute([p for p in o.order if p is not None])
    for position, p in enumerate(o.order):
        if p is None:
            made = made.unsqueeze(position)
    return made


def arranged(made: Any, a: attend.Attention) -> Any:
    """A result [batch, head, row, inner] with the output's dimensions."""
    missing = [p for p in range(4) if p not in a.output]
    return made.permute([*a.output, *missing]).reshape([made.shape[p] for p in a.output])


def _sdpa(backend: str) -> Callable[[Setting], tuple[Call, str]]:
    def build(s: Setting) -> tuple[Call, str]:
        a = attend.match(s.spec)
        kind = attend.mask_kind(a)
        if attend.score_function(a, s.scalars) is not None:
            raise NotApplicable("the scores contain more than a scaled product")
        if kind == "other":
            raise NotApplicable("the mask is not causal")
        if kind == "causal" and a.rows != a.columns:
            raise NotApplicable("the library aligns the causal mask to the first query, the spec to the last")
        _only_small(s, a)
        q, k, v = _operands(s, a)
        if q.shape[0] != k.shape[0]:
            k, v = (x.expand(q.shape[0], -1, -1, -1) for x in (k, v))
        attention = importlib.import_module("torch.nn.attention")
        only = getattr(attention.SDPBackend, backend)

        def call(k: Any, v: Any, groups: bool) -> Tensors:
            with attention.sdpa_kernel(only):
                made = s.torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=kind == "causal", scale=a.scale, enable_gqa=groups
                )
            return (arranged(made, a),)

        if a.k.groups == 1:
            return (lambda: call(k, v, False)), ""
        try:
            call(k, v, True)
            return (lambda: call(k, v, True)), "groups by enable_gqa"
        except RuntimeError:
            wide = [x.repeat_interleave(a.k.groups, 1) for x in (k, v)]
            return (lambda: call(wide[0], wide[1], False)), "keys and values repeated for each head before the timing"

    return build


def _fa3(s: Setting) -> tuple[Call, str]:
    a = attend.match(s.spec)
    kind = attend.mask_kind(a)
    if attend.score_function(a, s.scalars) is not None or kind == "other":
        raise NotApplicable("the scores contain more than a scaled product, or the mask is not causal")
    if {s.spec.tensors[o.name].dtype for o in (a.q, a.k, a.v)} == {DType.F8E4M3}:
        if s.spec.outputs[0].dtype is not DType.BF16:
            raise NotApplicable("the library returns bf16 for operands in f8e4m3")
    else:
        _only_small(s, a)
    flash = importlib.import_module("flash_attn_interface").flash_attn_func
    q, k, v = (x.transpose(1, 2) for x in _operands(s, a))
    if q.shape[0] != k.shape[0]:
        k, v = (x.expand(q.shape[0], -1, -1, -1) for x in (k, v))

    def call() -> Tensors:
        made = flash(q, k, v, softmax_scale=a.scale, causal=kind == "causal")
        out = made[0] if isinstance(made, tuple) else made
        return (arranged(out.transpose(1, 2), a),)

    return call, ""


def _in_stages(build: Callable[[Setting], tuple[Call, str]]) -> Callable[[Setting], tuple[Call, str]]:
    """``build``, and where it does not take the spec, operands that are computed first and ``build`` for the rest."""

    def made(s: Setting) -> tuple[Call, str]:
        try:
            return build(s)
        except NotApplicable:
            parts = stages(s.spec)
            if parts is None:
                raise
        first, rest = parts
        torch = s.torch
        operands = {
            t.name: torch.empty(shape_of(t), dtype=torch_type(torch, t.dtype), device=s.device) for t in first.outputs
        }
        main, values = bound(torch, translate(first, s.scalars, "native"), s.device)
        arguments = (*(s.tensors[t.name] for t in first.inputs), *values)

        def fill(*given: Any) -> None:
            for target, x in zip(operands.values(), main(*given), strict=True):
                target.copy_(x)

        before = torch.compile(fill, dynamic=False)
        call, note = build(replace(s, spec=rest, tensors={**s.tensors, **operands}))

        def both() -> Tensors:
            before(*arguments)
            return call()

        said = f"{', '.join(operands)} by torch.compile first"
        return both, f"{said}; {note}" if note else said

    return made


def _either(*builders: Callable[[Setting], tuple[Call, str]]) -> Callable[[Setting], tuple[Call, str]]:
    """The first of ``builders`` that takes the spec."""

    def made(s: Setting) -> tuple[Call, str]:
        for build in builders[:-1]:
            with suppress(NotApplicable):
                return build(s)
        return builders[-1](s)

    return made


def _only_small(s: Setting, a: attend.Attention) -> None:
    types = {s.spec.tensors[o.name].dtype for o in (a.q, a.k, a.v)} | {s.spec.outputs[0].dtype}
    if len(types) != 1 or not types <= set(HALVES):
        raise NotApplicable("the library requires f16 or bf16 for all tensors")


def _flex(s: Setting) -> tuple[Call, str]:
    a = attend.match(s.spec)
    _only_small(s, a)
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    score, mask = attend.score_function(a, s.scalars), attend.mask_function(a, s.scalars)
    if attend.mask_kind(a) == "none":
        mask = None
    q, k, v = _operands(s, a)
    blocks = None
    if mask is not None:
        used = attend.mask_names(a)
        b, h = (q.shape[0] if a.scores.batch in used else None), (q.shape[1] if a.scores.head in used else None)
        blocks = flex.create_block_mask(_mod(s, mask), b, h, a.rows, a.columns, device=s.device)
    options = {"score_mod": _mod(s, score) if score else None, "block_mask": blocks, "scale": a.scale}
    fused = s.torch.compile(flex.flex_attention, dynamic=False)
    return (lambda: (arranged(fused(q, k, v, enable_gqa=a.k.groups > 1, **options), a),)), ""


def _mod(s: Setting, function: attend.ScoreText) -> Callable[..., Any]:
    made: Callable[..., Any] = define(s.torch, function.text, "make")(*(s.tensors[t] for t in function.tensors))
    return made


BUILDERS: Mapping[str, Callable[[Setting], tuple[Call, str]]] = {
    "cudnn": _either(_convolution, _in_stages(_sdpa("CUDNN_ATTENTION"))),
    "fa2": _in_stages(_sdpa("FLASH_ATTENTION")),
    "fa3": _in_stages(_fa3),
    "flex": _in_stages(_flex),
    "cublas": _cublas,
    "torch": _eager,
    "compile": _compiled,
}


# -- the reference -------------------------------------------------------------------------------


def whole(s: Setting) -> dict[str, Array] | None:
    """Every output in f64 (integers: int64), evaluated piece by piece; a spec with convolutions at once, by those of
    the library in f64, because gathering its windows takes minutes.

    None where the spec cannot be translated, or where its intermediate results do not fit into memory.
    """
    out: dict[str, Any] = {}
    torch = s.torch
    for t in s.spec.outputs:
        kind = torch.float64 if t.dtype.is_float else torch.int64
        out[t.name] = torch.empty(shape_of(t), dtype=kind, device=s.device)
    for chosen in [{}] if convolve.convolutions(s.spec) else pieces(s.spec, _LARGEST):
        cut = restrict(s.spec, chosen)
        tensors = {
            t.name: _cut(s, s.tensors[t.name], cut.inputs[t.name]) for t in s.spec.inputs if t.name in cut.inputs
        }
        tensors |= {n: torch.as_tensor(x, device=s.device) for n, x in cut.rows.items()}
        try:
            main, made = bound(torch, translate(cut.spec, s.scalars, "exact"), s.device)
        except NotApplicable:
            return None
        try:
            found = main(*(tensors[t.name] for t in cut.spec.inputs), *made)
        except torch.cuda.OutOfMemoryError:  # an intermediate result of the spec as it is written
            return None
        for t, x in zip(s.spec.outputs, found, strict=True):
            _paste(out[t.name], x, cut.outputs[t.name])
    return {name: x.cpu().numpy() for name, x in out.items()}


def _cut(s: Setting, tensor: Any, at: Mapping[int, Array]) -> Any:
    for position, indices in at.items():
        tensor = tensor.index_select(position, s.torch.as_tensor(indices, device=s.device))
    return tensor


def _paste(target: Any, piece: Any, at: Mapping[int, Array]) -> None:
    """Write a piece; the indices of a piece are a range."""
    for position, indices in at.items():
        target = target.narrow(position, int(indices[0]), len(indices))
    target.copy_(piece)
