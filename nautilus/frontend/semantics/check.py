"""Semantic analysis, from syntax to Spec: resolves all names, ranks, ranges and types, and collects all errors.

:func:`load_spec` is the entry point of the frontend.  It reads the file and its includes, collects names, numbers and
shapes (:mod:`symbols`), orders the definitions by dependence (:mod:`order`), expands and types each one
(:mod:`expand`), searches reads that are out of range (:mod:`bounds`), and warns about unused names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path

from nautilus.core.errors import Diagnostic, DiagnosticError, Note, Severity, nearest
from nautilus.core.expr.nodes import Axis, Expr, Op, Param, Var, substitute
from nautilus.core.index.sizes import Extent, at_bound, volume
from nautilus.core.index.strides import MOST_STRIDE, row_major
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.frontend.codes import MAX_DEFINED, MAX_DEPTH, MAX_ERRORS, MAX_NODES
from nautilus.frontend.family import family
from nautilus.frontend.semantics import typed
from nautilus.frontend.semantics.alpha import tidy
from nautilus.frontend.semantics.assume import assumptions, note_sizes
from nautilus.frontend.semantics.bounds import TYPICAL, check_reads
from nautilus.frontend.semantics.expand import Expander, expand_definition
from nautilus.frontend.semantics.frames import Bound, Frame, Use
from nautilus.frontend.semantics.order import broken_functions, dependence_order
from nautilus.frontend.semantics.recurrence import apart, define_recurrence, unguarded
from nautilus.frontend.semantics.symbols import REDUCTIONS, Shaped, Symbols, collect, rank_fault
from nautilus.frontend.semantics.types.index_width import exact_indices, scalar_ranges
from nautilus.frontend.semantics.types.packed import PACKED, packed_output
from nautilus.frontend.sizes import samples
from nautilus.frontend.spec import Assumption, Definition, Dim, Scalar, Spec, Tensor
from nautilus.frontend.syntax import ast
from nautilus.frontend.syntax.lint import lint
from nautilus.frontend.syntax.load import Program, facts_of, prelude, read_path, read_text

_RECURSION = 50_000  # Python frames; the depth limits of the language apply long before


def load_spec(
    source: str | PathLike[str], *, dims: Mapping[str, int] | None = None, keep_runtime: bool = False,
    unaligned: bool = False, assumed: Sequence[str] = (), name: str = "<text>",
) -> Spec:  # fmt: skip
    """The Spec of a file, or of a text called ``name`` if ``source`` is a str with a newline.

    ``dims`` overrides sizes, as ``--dim`` does. With ``keep_runtime`` a runtime dim stays one, and its value in
    ``dims`` is the size at which tools run the spec. ``unaligned``: strides that are given at launch are any numbers of
    elements, and so are the addresses of their tensors; else they are multiples of 16 bytes. ``assumed``: further
    facts, each the text of a condition. Raises DiagnosticError with all errors and warnings; the warnings of a valid
    spec are in ``Spec.warnings``.
    """
    if isinstance(source, str) and "\n" in source:
        return load_text(source, name, dims=dims, keep_runtime=keep_runtime, unaligned=unaligned, assumed=assumed)
    with _raised_recursion_limit():
        return _checked(_analysed(read_path(Path(source)), dims or {}, keep_runtime, unaligned, assumed))


def load_text(
    text: str,
    name: str = "<text>",
    *,
    dims: Mapping[str, int] | None = None,
    folder: Path | None = None,
    keep_runtime: bool = False,
    unaligned: bool = False,
    assumed: Sequence[str] = (),
) -> Spec:
    """The Spec of ``text``; ``name`` is its name in diagnostics, ``folder`` contains its includes."""
    with _raised_recursion_limit():
        return _checked(_analysed(read_text(text, name, folder), dims or {}, keep_runtime, unaligned, assumed))


@dataclass(frozen=True)
class Analysis:
    """The facts about a spec, valid or not.

    ``diagnostics``: all findings as the command line shows them.  ``spec``: None where one of them is an error.
    ``symbols``: None where the file itself cannot be read.
    """

    program: Program
    diagnostics: tuple[Diagnostic, ...]
    symbols: Symbols | None = None
    spec: Spec | None = None


def analyse_text(text: str, name: str, folder: Path | None, dims: Mapping[str, int]) -> Analysis:
    """What :func:`load_text` finds, without an exception where the spec is not valid."""
    with _raised_recursion_limit():
        return _analysed(read_text(text, name, folder), dims, False, False)


@contextmanager
def _raised_recursion_limit() -> Iterator[None]:
    """Raise Python's recursion limit for expressions at the depth limit, which need a few frames a level."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _checked(found: Analysis) -> Spec:
    if found.spec is None:
        raise DiagnosticError(found.diagnostics)
    return found.spec


def _analysed(
    program: Program, dims: Mapping[str, int], keep_runtime: bool, unaligned: bool, assumed: Sequence[str] = ()
) -> Analysis:  # fmt: skip
    if any(e.span.line == 0 for e in program.errors):  # the file itself could not be read
        return Analysis(program, tuple(program.errors))
    noted = partial(note_sizes, assumed=len(assumed))
    sym = collect([*program.statements, *facts_of(assumed)], prelude(), dims, keep_runtime, noted)
    facts = assumptions(sym)
    found = _definitions(sym, facts)
    strides = {name: _strides(sym, decl, unaligned) for name, decl in sym.decls.items()}
    _unused(sym, found)
    everything = [*program.errors, *(_drop_consequential(sym.errors) if program.errors else sym.errors)]
    everything = [replace(d, span=program.whole) if d.span == NO_SPAN else d for d in everything]
    everything = _said_once(sorted(everything, key=_position))
    if any(d.severity is Severity.ERROR for d in everything):
        everything = [d for d in everything if d.code not in _UNUSED]  # the error may hide a use
        if len(everything) > MAX_ERRORS:
            everything = [d for d in everything if d.severity is Severity.ERROR][:MAX_ERRORS]
        return Analysis(program, tuple(everything), sym)
    warnings = tuple(sorted([*everything, *lint(program.statements, REDUCTIONS)], key=_position))
    made = _assemble(program.name, sym, found, facts, strides, warnings)
    return Analysis(program, warnings, sym, replace(made, family=family(program.statements, sym.functions)))


_UNUSED = ("N0209", "N0210")


def _drop_consequential(errors: list[Diagnostic]) -> list[Diagnostic]:
    """``errors`` without findings about missing names, which may follow from a statement that did not parse."""
    consequential = {"N0201", "N0202", "N0203", "N0205", "N0208", "N0209", "N0210", "N0214", "N0217", "N0302"}
    return [e for e in errors if e.code not in consequential]


def _said_once(found: list[Diagnostic]) -> list[Diagnostic]:
    """``found`` without a second report of a missing name in one line."""
    names = {"N0201", "N0202", "N0203", "N0208", "N0302"}
    seen: set[tuple[str, str, str, int]] = set()
    out = []
    for d in found:
        key = (d.code, d.message, d.span.source.name, d.span.line)
        if d.code not in names or d.span.line == 0 or key not in seen:
            out.append(d)
        seen.add(key)
    return out


def _position(d: Diagnostic) -> tuple[int, str, int, int]:
    return (d.span.line == 0, d.span.source.name, d.span.line, d.span.column)


# ---- definitions
def _definitions(sym: Symbols, facts: tuple[Assumption, ...]) -> list[Definition]:
    broken_functions(sym)
    sym.ranges = scalar_ranges(f.condition for f in facts if not f.promised)
    out = []
    for names in dependence_order(sym):
        if names[0] in sym.recurrences:
            out += define_recurrence(sym, [sym.defines[n] for n in names], _define)
            continue
        made = _define(sym, sym.defines[names[0]])
        if made is not None:
            out += _stored(sym, made)
    if not sym.placeholder:
        sizes = samples(_dims(sym), facts, TYPICAL)
        shapes: dict[str, tuple[Extent, ...]] = {n: t.extents for n, t in sym.tensors.items() if t.shape is not None}
        shapes |= {d.name: tuple(a.extent for a in d.axes) for d in out}
        for d in out:
            if any(e.code == "N0303" and d.span.line <= e.span.line <= d.span.end_line for e in sym.errors):
                continue  # the range that is not meant leads out of a tensor
            faults = tuple(check_reads(d, shapes, sizes))
            for fault in faults or unguarded(d, out):
                sym.report(fault)
    return apart(out)


def _stored(sym: Symbols, made: Definition) -> tuple[Definition, ...]:
    """``made``, and in front of an output of a packed type the definition of its elements."""
    tensor = sym.tensors[made.name]
    if tensor.packed is None or not made.is_output:
        return (made,)
    return packed_output(made, unused(f"{made.name}_codes", set(sym.names())))


def _define(sym: Symbols, node: ast.Define) -> Definition | None:
    """Expand and type one definition, and register its shape for later ones."""
    name = node.name.id
    declared = sym.tensors.get(name) if name in sym.decls else None
    expander = Expander(sym)
    axes = _axes(sym, expander, node, declared)
    frame = Frame({b.name: b for b in axes})
    expr = expand_definition(expander, node.expr, frame)
    repeated = len({b.name for b in axes}) < len(axes)
    for b in axes:
        expander.infer_range(b, quiet=expr is None or repeated)
    sizes = [b.size() for b in axes]
    if any(s is None for s in sizes):
        shape = None
    else:
        shape = tuple(s for s in sizes if s is not None)
        sym.check_elements(shape, name, node.span, MAX_DEFINED)
    if declared is None:
        dtype = sym.dtype(node.dtype) if node.dtype is not None else None
    else:
        dtype = declared.dtype
        _same_dtype(sym, node, declared)
    final = None if expr is None else _finish(sym, expander, node, expr, dtype, declared is not None, axes)
    if declared is None:
        stored = dtype or (final.dtype if final is not None else DType.F32)
        known = shape if final is not None or name in sym.recurrences else None
        sym.tensors[name] = Shaped(name, stored, known, node.name.span, "definition")
    if final is None or shape is None:
        return None
    made = tuple(Axis(b.name, s.extent, b.span) for b, s in zip(axes, shape, strict=True))
    return Definition(name, dtype, made, final, declared is not None, node.span)


def _axes(sym: Symbols, expander: Expander, node: ast.Define, declared: Shaped | None) -> list[Bound]:
    """The variables of the left-hand side; those of an output have its declared sizes as their first use."""
    axes: list[Bound] = []
    for b in node.axes:
        if any(b.name == other.name for other in axes):
            sym.error("N0306", f"'{b.name}' is bound twice", b.span)
        axes.append(expander.fresh(b.name, b.span, None if b.range is None else sym.size(b.range)))
    if declared is None or declared.shape is None:
        return axes
    note = Note(f"'{declared.name}' is declared here", declared.span)
    if len(axes) != len(declared.shape):
        sym.report(rank_fault(declared, len(axes), node.name.span, defined=True).diagnostic)
        return axes
    for n, (axis, size) in enumerate(zip(axes, declared.shape, strict=True)):
        where = f"dimension {n + 1} of '{declared.name}'"
        if axis.written is not None and axis.written.extent != size.extent:
            message = f"'{axis.name}' ranges over {axis.written}, but over {size} in {where}"
            sym.error("N0303", message, axis.span, None, note)
        axis.uses.append(Use(size, axis.span, where))
    return axes


def _same_dtype(sym: Symbols, node: ast.Define, declared: Shaped) -> None:
    known = declared.packed or declared.dtype
    if node.dtype is not None and (PACKED.get(node.dtype.id) or sym.dtype(node.dtype)) is not known:
        message = f"'{declared.name}' is declared as {known}, but defined as {node.dtype.id}"
        sym.error("N0404", message, node.dtype.span, None, Note("it is declared here", declared.span))


def _finish(
    sym: Symbols, expander: Expander, node: ast.Define, expr: Expr, dtype: DType | None,
    is_output: bool, axes: list[Bound],
) -> Expr | None:  # fmt: skip
    """The expression in its stored form: typed, variables named, its depth within the limit."""
    extents = {b.var.name: extent.extent for b in axes if (extent := b.size()) is not None}
    try:
        expr = exact_indices(expr, extents, sym.ranges)
        written = PACKED.get(node.dtype.id) if node.dtype is not None else None
        tensor = sym.tensors.get(node.name.id) if is_output else None
        packed = tensor.packed if tensor is not None else written
        if packed is not None:
            if (fault := packed.fault(typed.widen(expr), node.name.id, node.expr.span)) is not None:
                raise fault
            expr = (packed.code if is_output else packed.rounded)(typed.widen(expr), node.expr.span)
        if dtype is not None:
            expr = typed.store(expr, dtype, node.name.id, node.expr.span)
            expr = expr if is_output else Op("cast", (expr,), dtype, node.expr.span)
        else:
            expr = typed.widen(expr)
    except typed.Fault as fault:
        sym.report(fault.diagnostic)
        return None
    expr = substitute(expr, {b.var.name: _named(b) for b in axes})
    taken = {b.name for b in axes} | set(sym.names())
    tidied, depth, size = tidy(expr, expander.names, taken)
    if depth > MAX_DEPTH or size > MAX_NODES:
        hint = "give an intermediate result a name"
        what = f"is nested {depth} deep" if depth > MAX_DEPTH else f"has {size} operations when written out"
        sym.error("N0105", f"the expression {what}", node.expr.span, hint)
        return None
    return tidied


def _named(bound: Bound) -> Expr:
    return Var(bound.name, DType.I32, bound.span)


# ---- the rest
def _unused(sym: Symbols, found: list[Definition]) -> None:
    for name, decl in sym.decls.items():
        if not decl.is_output and name not in sym.used:
            sym.warn("N0209", f"input '{name}' is never used", decl.name.span)
    for name, scalar in sym.scalars.items():
        if name not in sym.used:
            sym.warn("N0210", f"scalar '{name}' is never used", scalar.name.span)
    for d in found:
        if d.name in sym.defines and not d.is_output and d.name not in sym.used:
            sym.warn("N0210", f"'{d.name}' is defined but never used", sym.defines[d.name].name.span)


def _assemble(
    name: str, sym: Symbols, found: list[Definition], facts: tuple[Assumption, ...],
    strides: Mapping[str, tuple[Extent, ...] | None], warnings: tuple[Diagnostic, ...],
) -> Spec:  # fmt: skip
    tensors = {
        n: Tensor(n, t.dtype, t.extents, sym.decls[n].span, strides[n])
        for n, t in sym.tensors.items()
        if n in sym.decls
    }
    return Spec(
        name=name,
        inputs=tuple(t for n, t in tensors.items() if not sym.decls[n].is_output),
        scalars=tuple(_scalar(sym, s) for s in sym.scalars.values()),
        outputs=tuple(t for n, t in tensors.items() if sym.decls[n].is_output),
        dims=_dims(sym),
        definitions=tuple(found),
        facts=facts,
        warnings=warnings,
    )


def _strides(sym: Symbols, decl: ast.TensorDecl, unaligned: bool) -> tuple[Extent, ...] | None:
    """The strides of a declared tensor: of the axes that it names, params; of the others, what lies after them."""
    shape = sym.tensors[decl.name.id].shape
    if shape is None:
        return None
    late = any(isinstance(s.extent, Param) and s.extent.device for s in shape[1:])
    if decl.strided is None:
        return row_major([at_bound(s.extent) for s in shape]) if late else None
    dims, named = [s.dim for s in shape], set[int]()
    for name in decl.strided:
        own = {n for n, dim in enumerate(dims) if name.id in (dim, str(n), "all")}
        if not own:
            words = "an axis is named by its dim or its number; 'all' means every axis"
            hint = nearest(name.id, [d for d in dims if d]) or words
            sym.error("N0509", f"'{decl.name.id}' has no axis '{name.id}'", name.span, hint)
        named |= own
    if not decl.strided:
        named = {*range(len(shape) - 1)}
    found: list[Extent] = []
    dtype = sym.tensors[decl.name.id].dtype
    for n in reversed(range(len(shape))):
        dense = volume((at_bound(shape[n + 1].extent), found[0])) if found else 1
        aligned = 1 if unaligned or n == len(shape) - 1 else max(1, 128 // dtype.bits)  # 16 bytes
        label = unused(f"{decl.name.id}_stride{n}", set(sym.names()))
        param = Param(label, DType.I64, decl.span, MOST_STRIDE, 0, aligned)
        found.insert(0, param if n in named else dense)
    return tuple(found) if named else None


def _dims(sym: Symbols) -> tuple[Dim, ...]:
    dims = []
    for n, node in sym.dims.items():
        value = sym.values[n]
        sample = sym.overrides.get(n) if value is None else None
        size = None if value is None else int(value)
        least, multiple, device = sym.least.get(n, 0), sym.multiples.get(n, 1), value is None and bool(node.device)
        dims.append(Dim(n, size, sym.bounds.get(n), node.span, sample, least, multiple, device))
    return tuple(dims)


def _scalar(sym: Symbols, node: ast.ScalarDecl) -> Scalar:
    default: int | float | bool | None = sym.defaults.get(node.name.id)
    return Scalar(node.name.id, sym.dtype(node.dtype), default, node.span)


__all__ = ["Analysis", "analyse_text", "load_spec", "load_text"]
