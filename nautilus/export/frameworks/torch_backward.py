"""Gradients of the operators in a file for PyTorch, for autograd.

The gradients of a spec ``f`` are the results of the spec ``f_backward`` of the same file.  The tensors and scalars of
``f_backward`` have the names that ``f`` gives them; ``dY`` is the gradient of the output ``Y``, and ``dX`` that of the
input ``X``.  An input of ``f`` without such a result has no gradient.  The names are read from the text of the
operators, because each part of a file is compiled, and kept in the cache, by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from nautilus.core.errors import UnsupportedError
from nautilus.core.records import dataclass

#: names of the functions that are registered, which no operator has
TAKEN = frozenset({"_save", "_gradients"})
_TENSOR = "torch.Tensor"
_OWN = frozenset({"ctx", "inputs", "output"})  # the parameters of the functions that are registered


@dataclass(frozen=True, slots=True)
class _Function:
    """``tensors`` and ``numbers``: parameters by their type. ``results``: the tensors that it returns."""

    name: str
    parameters: tuple[str, ...]
    tensors: frozenset[str]
    results: tuple[str, ...]


def gradients(names: Sequence[str], texts: Sequence[str]) -> str:
    """Text that registers the gradients of the operators ``names``, which ``texts`` define.

    Raises UnsupportedError where the names of a gradient do not fit its operator.
    """
    found = {name: _function(name, text) for name, text in zip(names, texts, strict=True)}
    ends = []
    for name, f in found.items():
        back = found.get(f"{name}_backward")
        ends.append(f'\n\nno_gradient("{name}")\n' if back is None else f"\n\n{_registered(f, back)}\n")
    return "".join(ends)


def _function(name: str, text: str) -> _Function:
    (made,) = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name)
    last = made.body[-1]
    assert isinstance(last, ast.Return) and last.value is not None, "an operator ends with its results"
    results = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    typed = {a.arg: ast.unparse(a.annotation) for a in made.args.args if a.annotation is not None}
    tensors = frozenset(a for a, kind in typed.items() if kind == _TENSOR)
    return _Function(name, tuple(typed), tensors, tuple(ast.unparse(r) for r in results))


def _registered(f: _Function, back: _Function) -> str:
    given = tuple(f"d{y}" for y in f.results)
    known = (*f.parameters, *f.results)
    _refuse_misfits(f, back, known, given)
    read = [n for n in known if n in back.parameters]
    tensors = [n for n in read if n in f.tensors or n in f.results]
    numbers = [n for n in read if n not in tensors]
    arguments = [f"{n}.contiguous()" if n in given else n for n in back.parameters]
    results = [f"d{n}" if f"d{n}" in back.results else "None" for n in f.parameters]
    lines = [
        "def _save(ctx, inputs, output):",
        f"    {_several(f.parameters)} = inputs",
        f"    {', '.join(f.results)} = output",
        f"    ctx.save_for_backward({', '.join(tensors)})",
        f"    ctx.numbers = {_several(numbers) or '()'}",
        "",
        "",
        f"def _gradients(ctx, {', '.join(given)}):",
        *([f"    {_several(tensors)} = ctx.saved_tensors"] if tensors else []),
        *([f"    {_several(numbers)} = ctx.numbers"] if numbers else []),
        f"    {', '.join(back.results)} = {back.name}({', '.join(arguments)})",
        f"    return {', '.join(results)}",
        "",
        "",
        f'torch.library.register_autograd("nautilus::{f.name}", _gradients, setup_context=_save, lib=REGISTERED)',
    ]
    return "\n".join(lines)


def _several(names: Sequence[str]) -> str:
    return f"({''.join(f'{n}, ' for n in names).rstrip()})" if names else ""


def _refuse_misfits(f: _Function, back: _Function, known: Sequence[str], given: Sequence[str]) -> None:
    def misfits() -> Iterator[str]:
        for n in sorted(_OWN.intersection(known, given) | set(known).intersection(given)):
            yield f"'{n}' would have two meanings"
        for n in back.parameters:
            if n not in known and n not in given:
                yield f"'{n}' of {back.name} is neither a tensor or scalar of {f.name} nor the gradient of an output"
        for n in back.results:
            if n.removeprefix("d") not in f.tensors or not n.startswith("d"):
                yield f"'{n}' of {back.name} is not the gradient of an input of {f.name}"

    if found := "; ".join(misfits()):
        raise UnsupportedError(f"{back.name} as the gradient of {f.name}", found)
