"""The names of a spec: dims and consts as numbers, shapes as sizes, functions and definitions.

Two namespaces: values (dims, consts, scalars, tensors, definitions) and functions.  The prelude's
functions may be replaced by a spec's own; built-in ones may not.  After an error a dim keeps a
placeholder, so that the checks after it still run; ``placeholder`` then silences those that
depend on its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from nautilus.core.errors import Diagnostic, Note, Severity, nearest
from nautilus.core.expr.nodes import Param
from nautilus.core.functions import NAMED
from nautilus.core.index.sizes import MAX_DIM
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.text.words import counted
from nautilus.core.types import DType
from nautilus.frontend.codes import MAX_ELEMENTS, MAX_TENSORS
from nautilus.frontend.semantics.constant import NotConstant, evaluate
from nautilus.frontend.semantics.typed import Fault
from nautilus.frontend.semantics.types.packed import PACKED, Packed
from nautilus.frontend.syntax import ast
from nautilus.frontend.syntax.elsewhere import FUNCTIONS, TYPES, indexed

REDUCTIONS = ("sum", "max", "min", "prod", "any", "all", "mean", "argmax", "argmin")
CASTS: Mapping[str, DType] = {t.value: t for t in DType}
BUILTINS = {*NAMED, *CASTS, *PACKED, *REDUCTIONS}
_PLACEHOLDER = 64


@dataclass(frozen=True, slots=True)
class Size:
    """An extent and its dim.

    Two sizes agree if their ``dim`` agree or, if one of them was not written as a bare dim, if their numbers agree.
    """

    extent: int | Param
    dim: str | None
    known: bool = True  # False: an error was reported where the size is written

    def agrees(self, other: Size) -> bool:
        """Whether both may be the range of one index variable."""
        if not (self.known and other.known):
            return True
        if self.dim is not None and other.dim is not None:
            return self.dim == other.dim
        return self.extent == other.extent

    @property
    def name(self) -> str:
        """The size as a spec writes it."""
        return self.dim or str(self.extent)

    def __str__(self) -> str:
        if isinstance(self.extent, Param) or self.dim is None:
            return self.name
        return f"{self.dim} ({self.extent})"


@dataclass(frozen=True, slots=True)
class Shaped:
    """Type and shape of a tensor for its loads; ``shape`` is None after a reported error."""

    name: str
    dtype: DType
    shape: tuple[Size, ...] | None
    span: Span
    kind: str  # "input", "output" or "definition"
    packed: Packed | None = None  # of a tensor of bytes that holds two elements each; ``shape`` counts elements

    @property
    def extents(self) -> tuple[int | Param, ...]:
        """The shape in memory."""
        made = [s.extent for s in self.shape or ()]
        if self.packed is not None and made and isinstance(made[-1], int):
            made[-1] //= 2
        return tuple(made)


@dataclass
class Symbols:
    """The tables; ``errors`` collects the findings of this stage and of the ones after it."""

    overrides: Mapping[str, int]
    keep_runtime: bool = False  # a runtime dim with a value in ``overrides`` stays one
    dims: dict[str, ast.Dim] = field(default_factory=dict)
    consts: dict[str, ast.Const] = field(default_factory=dict)
    scalars: dict[str, ast.ScalarDecl] = field(default_factory=dict)
    decls: dict[str, ast.TensorDecl] = field(default_factory=dict)
    defines: dict[str, ast.Define] = field(default_factory=dict)
    recurrences: dict[str, ast.Recur] = field(default_factory=dict)  # by each of its definitions
    functions: dict[str, ast.Function] = field(default_factory=dict)
    tensors: dict[str, Shaped] = field(default_factory=dict)
    values: dict[str, int | float | bool | None] = field(default_factory=dict)
    bounds: dict[str, int | None] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)  # the least values of dims that facts state
    multiples: dict[str, int] = field(default_factory=dict)  # divisors of dims, by facts
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)  # of integer scalars, by facts
    assumes: list[ast.Assume] = field(default_factory=list)
    defaults: dict[str, int | float | bool] = field(default_factory=dict)
    errors: list[Diagnostic] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    placeholder: bool = False
    _busy: list[str] = field(default_factory=list)
    _reported: set[tuple[str, int, int, str]] = field(default_factory=set)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Inside of it, findings are dropped at the end."""
        errors, reported, placeholder = list(self.errors), set(self._reported), self.placeholder
        try:
            yield
        finally:
            self.errors[:], self._reported, self.placeholder = errors, reported, placeholder

    def report(self, diagnostic: Diagnostic) -> None:
        """Record a finding once, even if several expansions of a function repeat it."""
        key = (diagnostic.code, diagnostic.span.line, diagnostic.span.column, diagnostic.message)
        if key not in self._reported:
            self._reported.add(key)
            self.errors.append(diagnostic)

    def reported(self, code: str, span: Span) -> bool:
        """Whether a finding of this code was recorded at ``span``."""
        return any(key[:3] == (code, span.line, span.column) for key in self._reported)

    def error(self, code: str, message: str, span: Span, hint: str | None = None, *notes: Note) -> None:
        """Report an error at ``span``."""
        self.report(Diagnostic(code, message, span, notes, hint))

    def warn(self, code: str, message: str, span: Span) -> None:
        """Report a warning at ``span``."""
        self.report(Diagnostic(code, message, span, severity=Severity.WARNING))

    def function_hint(self, name: str) -> str | None:
        """What to write instead of the unknown function ``name``."""
        return FUNCTIONS.get(name) or nearest(name, [*BUILTINS, *self.functions])

    def names(self) -> list[str]:
        """Every value name, for hints."""
        return [*self.dims, *self.consts, *self.scalars, *self.decls, *self.defines]

    # ---- numbers
    def value(self, name: str, span: Span) -> int | float | bool | None:
        """The number of a dim or const; None for a runtime dim. Raises NotConstant on a cycle."""
        if name not in self.values:
            if name in self._busy:
                self.error("N0207", f"'{name}' is defined from its own value", span)
                self.values[name], self.placeholder = _PLACEHOLDER, True
                return _PLACEHOLDER
            self._busy.append(name)
            found = self._dim(self.dims[name]) if name in self.dims else self._const(self.consts[name])
            self._busy.pop()
            self.values.setdefault(name, found)
        return self.values[name]

    def _const(self, node: ast.Const) -> int | float | bool:
        return self._evaluate(node.value)

    def _evaluate(self, node: ast.Expr) -> int | float | bool:
        try:
            return evaluate(node, self._lookup)
        except NotConstant as fault:
            self.report(fault.diagnostic)
        except Fault as fault:
            self.report(fault.diagnostic)
        self.placeholder = True
        return _PLACEHOLDER

    def _lookup(self, name: ast.Name) -> int | float | bool:
        if name.id in self.dims or name.id in self.consts:
            self.used.add(name.id)
            value = self.value(name.id, name.span)
            if value is None:
                raise NotConstant(
                    "N0506", f"'{name.id}' is known only at launch", name.span,
                    "a runtime size stands alone in a shape and in expressions, not in compile-time numbers",
                )  # fmt: skip
            return value
        if name.id in self.names():
            raise NotConstant("N0504", f"'{name.id}' is not a compile-time number", name.span)
        raise NotConstant(
            "N0208",
            f"unknown dim or const '{name.id}'",
            name.span,
            nearest(name.id, [*self.dims, *self.consts]) or f"declare it: 'dim {name.id} = 128'",
        )

    def _dim(self, node: ast.Dim) -> int | None:
        name = node.name.id
        if node.bound is not None:
            self.bounds[name] = self.positive(self._evaluate(node.bound), f"the bound of '{name}'", node.bound.span)
        elif node.device:
            hint = f"write 'dim {name} = device <= 65536'; grids and memory have the size of the bound"
            self.error("N0506", f"'{name}' is a size in device memory without a bound", node.span, hint)
            self.placeholder = True
        given = self.overrides.get(name)
        if node.runtime and self.keep_runtime and given is not None:
            most = self.bounds.get(name) or MAX_DIM
            if not 0 <= given <= most:
                self.error("N0503", f"dim '{name}' is {given}; allowed are 0 to {most}", node.span)
            return None
        if given is None and node.runtime:
            return None
        if given is None and node.value is None:
            hint = f"give it with --dim {name}=..., or write 'dim {name} = ...'"
            self.error("N0501", f"no size is given for '{name}'", node.span, hint)
            self.placeholder = True
            return _PLACEHOLDER
        where = f"dim '{name}'"
        if given is None:
            assert node.value is not None
            return self.positive(self._evaluate(node.value), where, node.value.span)
        size = self.positive(given, where, node.span)
        bound = self.bounds.get(name)
        if bound is not None and size > bound:
            self.error("N0503", f"{where} is {size}, above its bound {bound}", node.span)
        return size

    def positive(self, value: int | float | bool, what: str, span: Span) -> int:
        """``value`` as a size, or a placeholder after a reported error."""
        if isinstance(value, bool) or not isinstance(value, int):
            hint = "'//' divides integers" if isinstance(value, float) else None
            self.error("N0505", f"{what} is {str(value).lower()}, not an integer", span, hint)
        elif value <= 0:
            self.error("N0502", f"{what} is {value}; a size is at least 1", span)
        elif value > MAX_DIM:
            self.error("N0503", f"{what} is {value}; a size is at most {MAX_DIM}", span)
        else:
            return value
        self.placeholder = True
        return _PLACEHOLDER

    def set_default(self, name: str, node: ast.ScalarDecl) -> None:
        """Evaluate a scalar's default and check that its type holds it."""
        assert node.default is not None
        dtype, value = self.dtype(node.dtype), self._evaluate(node.default)
        if isinstance(value, bool) != (dtype is DType.BOOL) or (dtype.is_int and not isinstance(value, int)):
            self.error("N0404", f"'{name}' is {dtype}, but its default is {value}", node.default.span)
            return
        self.defaults[name] = float(value) if dtype.is_float else value

    # ---- shapes
    def runtime_size(self, name: str, span: Span) -> Param:
        """The symbol of runtime dim ``name``."""
        most, least = self.bounds.get(name) or MAX_DIM, self.least.get(name, 0)
        return Param(name, DType.I32, span, most, least, self.multiples.get(name, 1), bool(self.dims[name].device))

    def size(self, node: ast.Expr) -> Size:
        """The value of a size expression in a shape or a range."""
        if isinstance(node, ast.Name) and node.id in self.dims:
            self.used.add(node.id)
            value = self.value(node.id, node.span)
            if value is None:
                return Size(self.runtime_size(node.id, node.span), node.id)
            return Size(int(value), node.id)
        if isinstance(node, ast.Name) and node.id in self.consts:
            inner = self.consts[node.id].value
            if isinstance(inner, ast.Name) and inner.id in self.dims and node.id not in self._busy:
                return self.size(inner)
        before, self.placeholder = self.placeholder, False
        extent = self.positive(self._evaluate(node), "this size", node.span)
        known, self.placeholder = not self.placeholder, self.placeholder or before
        return Size(extent, None, known)

    def shape(self, nodes: Sequence[ast.Expr], name: str, span: Span) -> tuple[Size, ...]:
        """The sizes of tensor ``name``. Raises Fault for one that is no size, and for too many elements."""
        sizes = tuple(self.size(n) for n in nodes)
        self.check_elements(sizes, name, span)
        return sizes

    def check_elements(self, sizes: tuple[Size, ...], name: str, span: Span, most: int = MAX_ELEMENTS) -> None:
        """Report a tensor of more than ``most`` elements, a power of two."""
        total = 1
        for s in sizes:
            bound = self.bounds.get(s.dim or "") if isinstance(s.extent, Param) else s.extent
            total *= bound or 1
        if total > most:
            limit = f"2^{most.bit_length() - 1}"
            self.error("N0503", f"'{name}' would hold {total} elements; at most {limit} are allowed", span)

    def dtype(self, node: ast.Name) -> DType:
        """The element type written at ``node`` (f32 after reporting an unknown one); of a packed one, the unpacked."""
        if node.id in CASTS:
            return CASTS[node.id]
        if node.id in PACKED:
            return PACKED[node.id].unpacked
        known = [*CASTS, *PACKED]
        hint = TYPES.get(node.id) or nearest(node.id, known) or "element types: " + " ".join(known)
        self.error("N0405", f"unknown element type '{node.id}'", node.span, hint)
        return DType.F32


def collect(
    statements: Sequence[ast.Statement],
    prelude: Sequence[ast.Function],
    overrides: Mapping[str, int],
    keep_runtime: bool = False,
    note_sizes: Callable[[Symbols], None] = lambda sym: None,
) -> Symbols:
    """The tables of a program with evaluated numbers and shapes; definitions are only registered.

    ``note_sizes`` runs once the numbers are known, before the shapes.
    """
    sym = Symbols(overrides, keep_runtime)
    seen: dict[str, ast.Name] = {}
    for s in statements:
        match s:
            case ast.Define():
                _register_define(sym, s)
            case ast.Recur(defines=defines):
                for d in defines:
                    _register_define(sym, d)
                    if sym.defines[d.name.id] is d:
                        sym.recurrences[d.name.id] = s
            case ast.Assume():
                sym.assumes.append(s)
            case ast.Function():
                _register_function(sym, s)
            case ast.Dim() | ast.Const() | ast.TensorDecl() | ast.ScalarDecl():
                if s.name.id in seen:
                    note = Note("it was declared here", seen[s.name.id].span)
                    sym.error("N0204", f"'{s.name.id}' is declared twice", s.name.span, None, note)
                    continue
                seen[s.name.id] = s.name
                _register(sym, s)
    for name, define in list(sym.defines.items()):
        if name in seen and name not in sym.decls:
            note = Note("it was declared here", seen[name].span)
            sym.error("N0204", f"'{name}' is declared twice", define.name.span, None, note)
            del sym.defines[name]
    for f in prelude:
        sym.functions.setdefault(f.name.id, f)
    _evaluate_numbers(sym)
    note_sizes(sym)
    _evaluate_shapes(sym)
    return sym


def _register(sym: Symbols, s: ast.Dim | ast.Const | ast.TensorDecl | ast.ScalarDecl) -> None:
    match s:
        case ast.Dim():
            sym.dims[s.name.id] = s
        case ast.Const():
            sym.consts[s.name.id] = s
        case ast.TensorDecl():
            sym.decls[s.name.id] = s
            if len(sym.decls) == MAX_TENSORS + 1:
                sym.error("N0503", f"there are more than {MAX_TENSORS} inputs and outputs", s.span)
        case ast.ScalarDecl():
            sym.scalars[s.name.id] = s


def _register_define(sym: Symbols, s: ast.Define) -> None:
    if s.name.id in sym.defines:
        note = Note("it was defined here", sym.defines[s.name.id].span)
        hint = "a tensor is defined once; give the other one a name of its own"
        sym.error("N0206", f"'{s.name.id}' is defined twice", s.name.span, hint, note)
        return
    sym.defines[s.name.id] = s


def _register_function(sym: Symbols, s: ast.Function) -> None:
    name = s.name.id
    if name in BUILTINS:
        sym.error("N0216", f"'{name}' is built in and cannot be defined again", s.name.span)
        return
    if name in sym.functions:
        note = Note("it was defined here", sym.functions[name].name.span)
        sym.error("N0204", f"function '{name}' is defined twice", s.name.span, None, note)
        return
    taken: set[str] = set()
    for n in (*s.indices, *((s.cond,) if s.cond else ()), *s.params):
        if n.id in taken:
            sym.error("N0204", f"'{n.id}' is named twice in the arguments of '{name}'", n.span)
        taken.add(n.id)
    sym.functions[name] = s


def _evaluate_numbers(sym: Symbols) -> None:
    """Evaluate every dim and const."""
    for name in sym.overrides:
        if name not in sym.dims:
            hint = nearest(name, sym.dims) or (f"its dims are {', '.join(sym.dims)}" if sym.dims else None)
            sym.error("N0217", f"a size is given for '{name}', but the spec has no such dim", NO_SPAN, hint)
    for name, dim in sym.dims.items():
        sym.value(name, dim.span)
    for name, const in sym.consts.items():
        sym.value(name, const.span)


def _evaluate_shapes(sym: Symbols) -> None:
    """Evaluate every declared shape and the defaults of scalars."""
    for name, decl in sym.decls.items():
        shape = sym.shape(decl.shape, name, decl.span)
        kind = "output" if decl.is_output else "input"
        sym.tensors[name] = Shaped(name, sym.dtype(decl.dtype), shape, decl.name.span, kind)
        if decl.dtype.id in PACKED:
            sym.tensors[name] = _packed(sym, decl, sym.tensors[name], PACKED[decl.dtype.id])
        if not decl.is_output and name in sym.defines:
            note = Note("it was declared here", decl.name.span)
            sym.error(
                "N0215",
                f"'{name}' is an input and cannot be defined",
                sym.defines[name].name.span,
                "give what is computed a name of its own",
                note,
            )
            del sym.defines[name]
        if decl.is_output and name not in sym.defines:
            hint = f"add '{name}[...] = ...'"
            sym.error(
                "N0205",
                f"output '{name}' is never defined",
                decl.name.span,
                nearest_define(sym, name) or hint,
            )
    for name, scalar in sym.scalars.items():
        if scalar.default is not None:
            sym.set_default(name, scalar)
        else:
            sym.dtype(scalar.dtype)
        if scalar.dtype.id in PACKED:
            packed = PACKED[scalar.dtype.id]
            hint = f"write '{packed.unpacked}'"
            sym.error("N0405", f"a scalar has no packed type, but got {packed}", scalar.dtype.span, hint)
    if not any(d.is_output for d in sym.decls.values()):
        sym.error("N0214", "the spec declares no output", NO_SPAN, "write 'output O: f16[M, N]'")


def _packed(sym: Symbols, decl: ast.TensorDecl, tensor: Shaped, packed: Packed) -> Shaped:
    """The declared tensor of a packed type; reports a shape that such a tensor cannot have."""
    last = tensor.shape[-1].extent if tensor.shape else None
    problem = None
    if last is None:
        problem = f"'{tensor.name}' has no axis along which two elements of {packed} share a byte"
    elif not isinstance(last, int):
        problem = f"the last size of '{tensor.name}' is known only at launch, but two elements of {packed} share a byte"
    elif last % 2:
        problem = f"the last size of '{tensor.name}' is {last}, but two elements of {packed} share a byte"
    elif decl.strided is not None:
        problem = f"'{tensor.name}' of {packed} has no strides that are given at launch"
    elif tensor.name in sym.recurrences:
        problem = f"'{tensor.name}' is a recurrence, which {packed} cannot hold"
    if problem is not None:
        hint = f"the last size is even, or the type is '{packed.unpacked}'"
        sym.error("N0510", problem, decl.shape[-1].span if decl.shape else decl.span, hint)
        return tensor
    return Shaped(tensor.name, DType.U8, tensor.shape, tensor.span, tensor.kind, packed)


def rank_fault(tensor: Shaped, got: int, span: Span, hint: str | None = None, defined: bool = False) -> Fault:
    """The fault of ``tensor`` with ``got`` indices; ``defined``: on the left of its definition."""
    assert tensor.shape is not None
    sizes = ", ".join(s.name for s in tensor.shape)
    rank = len(tensor.shape)
    message = f"'{tensor.name}[{sizes}]' has {counted(rank, 'dimension')}, but got {counted(got, 'index', 'indices')}"
    verb = "declared" if tensor.kind != "definition" else "defined"
    if got == 0 and hint is None:
        hint = f"write '{indexed(tensor.name, rank)}{' = ...' if defined else ''}'"
    return Fault("N0301", message, span, hint, Note(f"'{tensor.name}' is {verb} here", tensor.span))


def nearest_define(sym: Symbols, name: str) -> str | None:
    """A hint at a definition whose name looks like a misspelt ``name``."""
    return nearest(name, [d for d in sym.defines if d not in sym.decls])
