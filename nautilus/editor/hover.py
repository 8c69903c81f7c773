"""What an editor shows at a name: what it is, its type and shape or its range, and where it is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nautilus.core.expr.nodes import Axis, Param, Reduce, walk
from nautilus.core.index.sizes import Extent
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.editor.document import Document
from nautilus.editor.names import Occurrence
from nautilus.editor.words import functions, meanings
from nautilus.frontend.semantics.symbols import Size, Symbols
from nautilus.frontend.spec import Spec
from nautilus.frontend.syntax.load import prelude
from nautilus.frontend.syntax.parse import tokens

_KINDS = {"intermediate": "intermediate tensor", "formal": "index variable of a function"}
_MOST = 8  # lines of a definition that are shown


@dataclass(frozen=True, slots=True)
class Hover:
    """Markdown about the name at ``span``."""

    span: Span
    text: str


#: the kernels of each definition, which only a plan knows
Kernels = Callable[[], Mapping[str, tuple[str, ...]]]


def hover(document: Document, line: int, column: int, kernels: Kernels = dict) -> Hover | None:
    """What is known of the name or the word at a place; ``kernels`` is called for tensors that are computed."""
    found = document.at(line, column)
    if found is None:
        return _word(document, line, column)
    text = "\n\n".join(part for part in _about(document, found, kernels) if part)
    return Hover(found.span, text) if text else None


def _word(document: Document, line: int, column: int) -> Hover | None:
    """A keyword, or a type where the statement does not parse."""
    for token in tokens(document.source):
        if token.line == line and token.column <= column <= token.end_column and str(token) in meanings():
            span = Span(document.source, token.line, token.column, token.end_line, token.end_column)
            return Hover(span, meanings()[str(token)])
    return None


def _about(document: Document, found: Occurrence, kernels: Kernels) -> Iterator[str]:
    kind, name = found.entity.kind, found.entity.name
    sym = document.analysis.symbols
    match kind:
        case "type":
            yield meanings().get(name, "")
            yield from functions().get(name, ())[:1]
        case "built-in":
            yield from functions().get(name, ())
        case "function":
            yield from _function(name, sym)
        case "argument" | "condition":
            yield f"`{name}`: {kind} of a function, an expression of its caller"
        case "index" | "formal":
            yield _index(document, found)
        case "dim" | "const" | "scalar" if sym is not None:
            yield _number(kind, name, sym)
        case "input" | "output" | "intermediate" if sym is not None:
            yield from _tensor(kind, name, sym, kernels)


def _function(name: str, sym: Symbols | None) -> Iterator[str]:
    own = sym.functions.get(name) if sym is not None else None
    node = own or next((f for f in prelude() if f.name.id == name), None)
    if node is not None:
        yield _code(_lines(node.span))
    if node in prelude():
        yield from functions().get(name, ())
        yield "defined in the prelude"


def _index(document: Document, found: Occurrence) -> str:
    kind, name = _KINDS.get(found.entity.kind, "index variable"), found.entity.name
    extent = _extent(document.analysis.spec, found)
    if extent is None:
        return f"`{name}`: {kind}"
    label = _label(document.analysis.symbols, extent)
    return f"`{name}`: {kind}, 0 <= {name} < {label}"


def _extent(spec: Spec | None, found: Occurrence) -> Extent | None:
    """The range of an index variable: that of the axis at the place that binds it."""
    bound = found.entity.bound
    if spec is None or bound is None:
        return None
    places = [(axis, d.span) for d in spec.definitions for axis in _axes(d.axes, d.expr)]
    places += [(axis, f.span) for f in spec.facts for axis in f.axes]
    exact = [axis.extent for axis, _ in places if axis.span == bound]
    inside = [axis.extent for axis, span in places if axis.name == found.entity.name and _holds(span, bound)]
    return next(iter(exact), None) or (inside[0] if len(set(inside)) == 1 else None)


def _axes(axes: tuple[Axis, ...], expr: object) -> Iterator[Axis]:
    yield from axes
    for node in walk(expr):  # type: ignore[arg-type]
        if isinstance(node, Reduce):
            yield from node.axes


def _holds(span: Span, place: Span) -> bool:
    start = (place.line, place.column)
    return span.source == place.source and (span.line, span.column) <= start < (span.end_line, span.end_column)


def _label(sym: Symbols | None, extent: Extent) -> str:
    """A size with the dims that have it."""
    if isinstance(extent, Param):
        return extent.name
    names = [n for n, v in sym.values.items() if v == extent and n in sym.dims] if sym is not None else []
    return f"{extent} ({' = '.join(names)})" if names else str(extent)


def _number(kind: str, name: str, sym: Symbols) -> str:
    if kind == "scalar":
        node = sym.scalars[name]
        default = f", {sym.defaults[name]} where it is not given" if name in sym.defaults else ""
        return f"{_code(f'scalar {name}: {node.dtype.id}')}\n\na number that is given at launch{default}"
    value = sym.values.get(name)
    if value is not None:
        return _code(f"{kind} {name} = {str(value).lower() if isinstance(value, bool) else value}")
    bound = sym.bounds.get(name)
    device = name in sym.dims and sym.dims[name].device
    written = f"dim {name} = {'device' if device else 'runtime'}" + (f" <= {bound}" if bound else "")
    return f"{_code(written)}\n\na size that " + ("kernels read in device memory" if device else "is known at launch")


def _tensor(kind: str, name: str, sym: Symbols, kernels: Kernels) -> Iterator[str]:
    shaped = sym.tensors.get(name)
    word = _KINDS.get(kind, kind)
    if shaped is None or shaped.shape is None:
        yield f"`{name}`: {word}"
    else:
        dtype = shaped.packed or shaped.dtype
        yield _code(f"{name}: {dtype}[{', '.join(s.dim or str(s.extent) for s in shaped.shape)}]")
        bits = 0 if kind == "intermediate" else shaped.dtype.bits if shaped.packed is None else 4
        yield f"{word}{_size(shaped.shape, bits)}"
    node = sym.defines.get(name)
    if node is None:
        return
    in_kernels = kernels().get(name, ())
    where = f"computed in line {node.span.line}"
    if in_kernels:
        plural = "s" if len(in_kernels) > 1 else ""
        where += f", by the kernel{plural} {', '.join(f'`{k}`' for k in in_kernels)}"
    yield where
    yield _code(_lines(node.span))


def _size(shape: tuple[Size, ...], bits: int) -> str:
    """The numbers of a shape, where they are known, and its bytes; ``bits`` 0: nothing says that it is in memory."""
    if not shape or any(isinstance(s.extent, Param) for s in shape):
        return ""
    total = 1
    for s in shape:
        assert isinstance(s.extent, int)
        total *= s.extent
    size, unit = total * bits / 8, "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if size >= 1024:
            size, unit = size / 1024, larger
    elements = f" of {' x '.join(str(s.extent) for s in shape)} elements"
    return f"{elements}, {size:.4g} {unit}" if bits else elements


def _lines(span: Span) -> str:
    lines = [span.source.line(n) for n in range(span.line, span.end_line + 1)]
    return "\n".join(lines if len(lines) <= _MOST else [*lines[:_MOST], "..."])


def _code(text: str) -> str:
    return f"```naut\n{text}\n```"
