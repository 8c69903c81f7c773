"""Expands one definition: syntax to typed expressions, functions inlined, variables bound.

The expander returns None for a sub-expression with a reported error, so that one error does not hide the next.
Variables get names that are unique in the definition (``%0``).  The range of a variable is inferred at the end of its
scope from the index positions that consist of the variable alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nautilus.core.errors import Note, nearest
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Param, Reduce, Var, free_vars, substitute
from nautilus.core.functions import NAMED
from nautilus.core.source import Span
from nautilus.core.text.words import counted
from nautilus.core.types import DType
from nautilus.frontend.codes import MAX_DEPTH, MAX_NODES
from nautilus.frontend.semantics import typed
from nautilus.frontend.semantics.frames import Bound, Frame, Use, link, moving
from nautilus.frontend.semantics.symbols import BUILTINS, CASTS, REDUCTIONS, Shaped, Size, Symbols, rank_fault
from nautilus.frontend.semantics.typed import Fault
from nautilus.frontend.semantics.types.packed import PACKED
from nautilus.frontend.syntax import ast
from nautilus.frontend.syntax.elsewhere import VALUES, unbound_hint

_BALANCE = 32  # longer chains of one associative operator become balanced trees


class Expander:
    """State of expanding one definition."""

    def __init__(self, sym: Symbols) -> None:
        self.sym = sym
        self.names: dict[str, str] = {}  # unique variable name -> the name in the source
        self._bound: dict[str, Bound] = {}
        self._memo: dict[tuple[int, str], tuple[Frame, Expr | None]] = {}
        self._positions: set[int] = set()  # ids of the names that stand alone in an index position
        self._steps = self._depth = 0
        self._in_end = False  # whether an end of a range ``lo .. hi`` is expanded

    # ---- variables
    def fresh(self, name: str, span: Span, written: Size | None = None, inherit: Bound | None = None) -> Bound:
        """A new index variable that messages call ``name``; ``written``: its range, if the spec gives one."""
        bound = Bound(name, Var(f"%{len(self._bound)}", DType.I32, span), span, written, inherit)
        self._bound[bound.var.name] = bound
        self.names[bound.var.name] = name
        return bound

    def infer_range(self, bound: Bound, quiet: bool = False) -> Size | None:
        """The range of ``bound``; reports a disagreement or a range that cannot be inferred.

        ``quiet``: an error in its scope was reported, which may hide the index positions that give the range.
        """
        size = bound.size()
        if size is None and (quiet or self.sym.reported("N0304", bound.span)):
            return None
        if size is None:
            message = f"the range of '{bound.name}' cannot be inferred: it never indexes a tensor alone"
            self.sym.error("N0304", message, bound.span, bound.hint(self.sym.dims))
            return None
        if bound.written is None:
            uses = bound.deciding()
            for use in uses:
                if not use.size.agrees(uses[0].size):
                    self._disagree(bound, uses[0], use)
                    return None
        return size

    def _disagree(self, bound: Bound, first: Use, second: Use) -> None:
        message = f"'{bound.name}' ranges over {second.size} in {second.where}"
        message += f", but over {first.size} in {first.where}"
        note = Note("the first range comes from here", first.span)
        either = " or ".join(f"'{bound.name}: {use.size.name}'" for use in (first, second))
        hint = f"an index has one range; to choose it, write {either} where it is bound"
        self.sym.error("N0303", message, second.span, hint, note)

    # ---- expressions
    def expr(self, node: ast.Expr, frame: Frame) -> Expr | None:
        """The expression of ``node`` in ``frame``, or None after a reported error."""
        self._steps += 1
        self._depth += 1
        span = self._span(node, frame)
        try:
            if self._depth > 2 * MAX_DEPTH:
                raise Fault("N0105", f"functions expand to more than {2 * MAX_DEPTH} levels", span)
            if self._steps > MAX_NODES:
                raise _TooLarge(span)
            return self._expr(node, frame, span)
        except Fault as fault:
            self.sym.report(fault.diagnostic)
            return None
        finally:
            self._depth -= 1

    def _span(self, node: ast.Expr, frame: Frame) -> Span:
        """The place of errors: that of the call, where the code is of the prelude."""
        return node.span if frame.site is None else frame.site

    def _expr(self, node: ast.Expr, frame: Frame, span: Span) -> Expr | None:
        match node:
            case ast.Num(value=value):
                return typed.number(value, span)
            case ast.Name():
                return self._name(node, frame, span)
            case ast.Index():
                return self._load(node, frame, span)
            case ast.Call():
                return self._call(node, (), None, frame, span)
            case ast.BoundCall() if node.name.id in REDUCTIONS:
                return self._reduction(node, frame, span)
            case ast.BoundCall():
                return self._call(node, node.binders, node.cond, frame, span)
            case ast.Unary(op=op, arg=arg):
                x = self.expr(arg, frame)
                return None if x is None else typed.unary({"-": "neg", "+": "pos", "~": "bit_not"}.get(op, op), x, span)
            case ast.Chain():
                return self._chain(node, frame, span)
            case ast.Compare():
                return self._compare(node, frame, span)
            case ast.Within():
                return self._within(node, frame, span)
            case ast.Ternary(then=then, test=test, other=other):
                c, a, b = self.expr(test, frame), self.expr(then, frame), self.expr(other, frame)
                return None if a is None or b is None or c is None else typed.select(c, a, b, span)

    def _list(self, nodes: Sequence[ast.Expr], frame: Frame) -> list[Expr] | None:
        found = [self.expr(n, frame) for n in nodes]
        return None if any(f is None for f in found) else [f for f in found if f is not None]

    def _chain(self, node: ast.Chain, frame: Frame, span: Span) -> Expr | None:
        args = self._list(node.args, frame)
        if args is None:
            return None
        ops = set(node.ops)
        if len(args) > _BALANCE and (ops <= {"+", "-"} or (len(ops) == 1 and ops <= {"*", "and", "or", "&", "|", "^"})):
            signed = (
                args
                if "-" not in ops
                else [args[0]]
                + [typed.unary("neg", a, span) if op == "-" else a for op, a in zip(node.ops, args[1:], strict=True)]
            )
            return self._balanced("+" if "-" in ops else node.ops[0], signed, span)
        total = args[0]
        for i, (op, arg) in enumerate(zip(node.ops, args[1:], strict=True)):
            here = span if frame.site else _through(node, i + 1)
            total = self._join(op, total, arg, here)
        return total

    def _balanced(self, op: str, args: list[Expr], span: Span) -> Expr:
        """``a + b + c + ...`` as a tree of logarithmic height."""
        while len(args) > 1:
            paired = [self._join(op, a, b, span) for a, b in zip(args[::2], args[1::2], strict=False)]
            args = paired + ([args[-1]] if len(args) % 2 else [])
        return args[0]

    def _join(self, op: str, a: Expr, b: Expr, span: Span) -> Expr:
        return typed.logic(op, a, b, span) if op in ("and", "or") else typed.arith(typed.ARITH[op], a, b, span)

    def _compare(self, node: ast.Compare, frame: Frame, span: Span) -> Expr | None:
        args = self._list(node.args, frame)
        if args is None:
            return None
        pairs = [
            typed.compare(typed.COMPARE[op], a, b, span) for op, a, b in zip(node.ops, args, args[1:], strict=False)
        ]
        return self._balanced("and", pairs, span)

    def _within(self, node: ast.Within, frame: Frame, span: Span) -> Expr | None:
        """``lo <= index < hi``; ends that are sizes are the range of an index that never stands alone."""
        var, outer = self.expr(node.index, frame), self._in_end
        self._in_end = True
        lo, hi = self.expr(node.lo, frame), self.expr(node.hi, frame)
        self._in_end = outer
        if lo is None or hi is None or not isinstance(var, Var):
            return None
        for end, part in ((lo, node.lo), (hi, node.hi)):
            if not end.dtype.is_int:
                message = f"an end of the range of '{node.index.id}' is {end.dtype}, not an integer"
                raise Fault("N0403", message, self._span(part, frame), typed.integer_hint(end))
            if var.name in free_vars(end):
                message = f"the range of '{node.index.id}' depends on '{node.index.id}' itself"
                raise Fault("N0304", message, self._span(part, frame), "rename it, if another index is meant")
        bound = self._bound[var.name]
        if (isinstance(lo, Var) or (isinstance(lo, Const) and lo.value >= 0)) and bound.between is None:
            bound.between = _size_of(hi)
        least = typed.compare("le", lo, var, span)
        return typed.logic("and", least, typed.compare("lt", var, hi, span), span)

    # ---- names and loads
    def _name(self, node: ast.Name, frame: Frame, span: Span) -> Expr | None:
        name = node.id
        found = frame.lookup(name)
        if found is not None:
            return found.var
        if frame.function is not None and frame.caller is not None:
            if name in frame.args:
                return self._thunk(name, frame.args[name], frame)
            if frame.function.cond is not None and name == frame.function.cond.id:
                true = typed.number(True, span)
                return true if frame.cond is None else self._thunk(name, frame.cond, frame)
            if name in frame.links:
                roots = frame.roots(name)
                if len(roots) != 1:
                    what = f"'{name}' stands for several variables here ({', '.join(roots)})"
                    raise Fault("N0213", what, span)
                raise Fault("N0302", f"index '{roots[0]}' is never bound", span, unbound_hint(roots[0]))
        return self._global(node, frame, span)

    def _thunk(self, name: str, node: ast.Expr, frame: Frame) -> Expr | None:
        assert frame.caller is not None
        key = (id(frame), name)
        if key not in self._memo:
            self._memo[key] = (frame, self.expr(node, frame.caller))
        return self._memo[key][1]

    def _global(self, node: ast.Name, frame: Frame, span: Span) -> Expr | None:
        name, sym = node.id, self.sym
        if name in sym.dims or name in sym.consts:
            value = sym.value(name, span)
            return sym.runtime_size(name, span) if value is None else typed.number(value, span)
        if name in sym.scalars:
            sym.used.add(name)
            dtype, default = sym.dtype(sym.scalars[name].dtype), sym.defaults.get(name)
            return Param(name, dtype, span, default=int(default) if dtype.is_int and default is not None else None)
        if name in sym.decls or name in sym.defines:
            return self._load(ast.Index(node, (), node.span, 2), frame, span)
        known = [*frame.visible(), *sym.names()]
        if name in sym.functions or name in BUILTINS:
            raise Fault("N0211", f"'{name}' is a function; it needs arguments", span, f"write '{name}(...)'")
        hint = VALUES.get(name) or nearest(name, known)
        if id(node) in self._positions or (len(name) <= 2 and name.islower() and hint is None):
            near = nearest(name, frame.locals) or self._size_in_its_place(name, frame)
            raise Fault("N0302", f"index '{name}' is never bound", span, near or unbound_hint(name))
        raise Fault("N0202", f"unknown name '{name}'", span, hint)

    def _size_in_its_place(self, name: str, frame: Frame) -> str | None:
        """The hint where a size stands in the place of the index variable ``name``, as in ``C[M, N] = A[i, j]``."""
        size = next((n for n in frame.locals if n in self.sym.dims), None)
        return size and f"a size such as '{size}' binds no index; write '{name}' in the place of one"

    def _load(self, node: ast.Index, frame: Frame, span: Span) -> Expr | None:
        name = node.name.id
        home = frame
        while name in home.args and name not in home.locals and home.caller is not None:
            arg = home.args[name]
            if not isinstance(arg, ast.Name):
                raise Fault("N0211", f"'{name}' is an argument that is no tensor; it cannot be indexed", span)
            name, home = arg.id, home.caller
        tensor = self.sym.tensors.get(name)
        if tensor is None:
            self._list(node.items, frame)
            if name in self.sym.defines:
                return None  # its own definition failed, or is part of a cycle: reported there
            raise self._no_tensor(name, frame, node.name.span if frame.site is None else span)
        self.sym.used.add(name)
        self._positions |= {id(item) for item in node.items if isinstance(item, ast.Name)}
        index = self._list(node.items, frame)
        if tensor.shape is None:
            return None
        if len(node.items) != len(tensor.shape):
            hint = "an index needs a name that no tensor has" if id(node.name) in self._positions else None
            raise rank_fault(tensor, len(node.items), span, hint)
        return None if index is None else self._read(tensor, index, node, frame, span)

    def _read(self, tensor: Shaped, index: list[Expr], node: ast.Index, frame: Frame, span: Span) -> Expr | None:
        assert tensor.shape is not None
        final = []
        for i, (e, size, item) in enumerate(zip(index, tensor.shape, node.items, strict=True)):
            where = span if frame.site else item.span
            if not e.dtype.is_int:
                message = f"index {i + 1} of '{tensor.name}' is {e.dtype}, not an integer"
                raise Fault("N0403", message, where, typed.integer_hint(e))
            # alone as written: 'i + (N - M)' sets no range, even where the sizes make it 'i'
            if isinstance(e, Var) and isinstance(_resolve(item, frame), ast.Name):
                place = f"dimension {i + 1} of '{tensor.name}'"
                self._bound[e.name].uses.append(Use(size, where, place, self._in_end))
            else:
                for name in moving(e):
                    self._bound[name].near = self._bound[name].near or size
            final.append(typed.widen(e))
        if tensor.packed is not None:
            return tensor.packed.element(tensor.name, tuple(final), span)
        return Load(tensor.name, tuple(final), tensor.dtype, span)

    def _no_tensor(self, name: str, frame: Frame, span: Span) -> Fault:
        sym = self.sym
        if frame.lookup(name) is not None or name in sym.dims or name in sym.consts or name in sym.scalars:
            return Fault("N0211", f"'{name}' is not a tensor; it cannot be indexed", span)
        if name in sym.functions or name in BUILTINS:
            hint = f"write '{name}[...](...)'" if name in REDUCTIONS else f"write '{name}(...)'"
            return Fault("N0211", f"'{name}' is a function; it needs arguments", span, hint)
        hint = nearest(name, [*sym.decls, *sym.defines]) or f"declare it, as in 'input {name}: f32[N]', or define it"
        return Fault("N0201", f"unknown tensor '{name}'", span, hint)

    # ---- functions
    def _call(
        self, node: ast.Call | ast.BoundCall, binders: tuple[ast.Binder, ...], cond: ast.Expr | None,
        frame: Frame, span: Span,
    ) -> Expr | None:  # fmt: skip
        name = node.name.id
        where = span if frame.site else node.name.span
        function = self.sym.functions.get(name)
        if function is None:
            if name in BUILTINS:
                if binders:
                    raise Fault("N0213", f"'{name}' takes no index variables", where, f"write '{name}(...)'")
                return self._builtin(name, node.args, frame, span)
            if not binders:
                known = len(self.sym.errors)
                self._list(node.args, frame)
                self.sym.errors[known:] = [e for e in self.sym.errors[known:] if e.code not in ("N0301", "N0302")]
            if name in self.sym.tensors or name in self.sym.defines:
                raise Fault("N0211", f"'{name}' is a tensor; its indices stand in '[...]'", where)
            raise Fault("N0203", f"unknown function '{name}'", where, self.sym.function_hint(name))
        links = link(function, binders, cond, where)
        if len(node.args) != len(function.params):
            args = ", ".join(p.id for p in function.params)
            indices = f"[{', '.join(i.id for i in function.indices)}]" if function.indices else ""
            usage = f"write '{name}{indices}({args})'"
            raise _count_fault(name, len(function.params), len(node.args), where, usage)
        in_prelude = function.span.source.name == "prelude.naut"
        inner = Frame(
            function=function,
            links=links,
            ranges={b.name: b.range for b in binders if b.range is not None},
            args={p.id: a for p, a in zip(function.params, node.args, strict=True)},
            cond=cond,
            caller=frame,
            site=frame.site or (span if in_prelude else None),
        )
        for p in function.params:  # an argument that the body never uses is checked all the same
            arg = inner.args[p.id]
            if not links and not (isinstance(arg, ast.Name) and arg.id in self.sym.tensors):
                self._thunk(p.id, inner.args[p.id], inner)
        return self.expr(function.body, inner)

    def _builtin(self, name: str, nodes: tuple[ast.Expr, ...], frame: Frame, span: Span) -> Expr | None:
        if name in REDUCTIONS and name not in NAMED:
            hint = f"write '{name}[j](...)'"
            raise Fault("N0213", f"'{name}' needs the index variables that it runs over", span, hint)
        args = self._list(nodes, frame)
        if args is None:
            return None
        if name in ("min", "max") and len(args) > 2:
            total = args[0]
            for a in args[1:]:
                total = typed.arith(name, total, a, span)
            return total
        arity = NAMED[name].arity if name in NAMED else 1
        if len(args) != arity:
            over = f"over an index it is '{name}[j](...)'" if name in REDUCTIONS else None
            raise _count_fault(name, arity, len(args), span, over)
        if arity == 2:
            return typed.arith(name, args[0], args[1], span)
        if name in PACKED:
            typed.numbers(f"'{name}'", span, args[0])
            return PACKED[name].rounded(args[0], span)
        return typed.cast(args[0], CASTS[name], span) if name in CASTS else typed.unary(name, args[0], span)

    # ---- reductions
    @contextmanager
    def _scope(self, node: ast.BoundCall, frame: Frame) -> Iterator[tuple[Frame, list[Bound]]]:
        """A frame in which the binders of ``node`` are new variables."""
        opened: list[Bound] = []
        names: set[str] = set()
        for b in node.binders:
            if b.name in names:
                raise Fault("N0306", f"'{b.name}' is bound twice", b.span)
            names.add(b.name)
            roots, ranges = frame.roots(b.name), frame.range_of(b.name)
            linked = b.name in frame.links and b.name not in frame.locals
            new: list[Bound] = []
            for root, written in zip(roots, ranges, strict=True):
                given = b.range if b.range is not None and len(roots) == 1 else written
                size = None if given is None else self.sym.size(_resolve(given, frame))
                outer = frame.lookup(b.name) if linked else None
                new.append(self.fresh(root, b.span if frame.site is None else frame.site, size, outer))
            frame = frame.bind(b.name, new)
            opened += new
        yield frame, opened

    def _reduction(self, node: ast.BoundCall, frame: Frame, span: Span) -> Expr | None:
        name = node.name.id
        if len(node.args) != 1:
            raise _count_fault(name, 1, len(node.args), span)
        with self._scope(node, frame) as (inner, bounds):
            cond = typed.number(True) if node.cond is None else self.expr(node.cond, inner)
            body = self.expr(node.args[0], inner)
            peak = None
            if name in ("argmax", "argmin") and cond is not None and body is not None:
                peak = self._reduce_peak(name, node, inner, span)
                if peak is None:
                    return None
            sizes = [self.infer_range(b, cond is None or body is None) for b in bounds]
            if cond is None or body is None or any(s is None for s in sizes):
                return None
            typed.condition(cond, f"'{name}[... | ...]'", span)
            axes = tuple(Axis(b.var.name, s.extent, b.span) for b, s in zip(bounds, sizes, strict=True) if s)
            if peak is not None:
                hit = typed.logic("and", cond, _is_peak(typed.widen(body), peak, span), span)
                return self._make("min", axes, hit, _flat_index(axes, span), span)
            return self._mean(axes, cond, body, span) if name == "mean" else self._make(name, axes, cond, body, span)

    def _reduce_peak(self, name: str, node: ast.BoundCall, frame: Frame, span: Span) -> Expr | None:
        """``max[j | c](e)`` inside ``argmax[j | c](e)``, over variables of its own."""
        with self._scope(node, frame) as (inner, bounds):
            cond = typed.number(True) if node.cond is None else self.expr(node.cond, inner)
            body = self.expr(node.args[0], inner)
            sizes = [self.infer_range(b, cond is None or body is None) for b in bounds]
            if cond is None or body is None or any(s is None for s in sizes):
                return None
            typed.condition(cond, f"'{name}[... | ...]'", span)
            axes = tuple(Axis(b.var.name, s.extent, b.span) for b, s in zip(bounds, sizes, strict=True) if s)
            return self._make("max" if name == "argmax" else "min", axes, cond, body, span)

    def _make(self, name: str, axes: tuple[Axis, ...], cond: Expr, body: Expr, span: Span) -> Expr:
        if name in ("any", "all"):
            typed.condition(body, f"'{name}'", span)
        elif body.dtype is DType.BOOL:
            hint = "'any' and 'all' take conditions; i32(...) counts them"
            raise Fault("N0401", f"'{name}' needs numbers, but got bool", span, hint)
        wide = typed.widen(body)
        return Reduce(name, axes, None if typed.is_true(cond) else cond, wide, wide.dtype, span)

    def _mean(self, axes: tuple[Axis, ...], cond: Expr, body: Expr, span: Span) -> Expr:
        total = self._make("sum", axes, cond, body, span)
        if not typed.is_true(cond):
            # the count runs over variables of its own: no axis is shared between two reductions
            fresh = {a.name: self.fresh(self.names[a.name], a.span).var for a in axes}
            own = tuple(Axis(fresh[a.name].name, a.extent, a.span) for a in axes)
            one = typed.number(1.0, span)
            count: Expr = self._make("sum", own, substitute(cond, dict(fresh)), one, span)
        else:
            count = typed.number(1, span)
            for a in axes:
                size = typed.number(a.extent, span) if isinstance(a.extent, int) else a.extent
                count = typed.arith("mul", count, size, span) if count != typed.number(1) else size
        return typed.arith("div", total, count, span)


class _TooLarge(Exception):
    """Raised where a definition exceeds the size limit; ends its expansion."""

    def __init__(self, span: Span) -> None:
        super().__init__()
        self.span = span


def expand_definition(expander: Expander, node: ast.Expr, frame: Frame) -> Expr | None:
    """``expander.expr`` with the size limit reported as a diagnostic."""
    try:
        return expander.expr(node, frame)
    except _TooLarge as fault:
        message = f"functions expand to more than {MAX_NODES} operations"
        expander.sym.error("N0105", message, fault.span, "give an intermediate result a name")
        return None


def _size_of(e: Expr) -> Size | None:
    """``e`` as a size, at least 1; None where it is neither a number nor a runtime size."""
    if isinstance(e, Const):
        return Size(max(int(e.value), 1), None)
    return Size(e, e.name) if isinstance(e, Param) and e.most is not None else None


def _resolve(node: ast.Expr, frame: Frame) -> ast.Expr:
    """The caller's expression if ``node`` is the name of an argument."""
    while isinstance(node, ast.Name) and node.id in frame.args and frame.caller is not None:
        node, frame = frame.args[node.id], frame.caller
    return node


def _is_peak(e: Expr, peak: Expr, span: Span) -> Expr:
    """Whether an element equals the extremum of all, or is NaN, as the extremum is then."""
    same = typed.compare("eq", e, peak, span)
    return Op("or", (same, typed.compare("ne", e, e, span)), DType.BOOL, span) if e.dtype.is_float else same


def _flat_index(axes: tuple[Axis, ...], span: Span) -> Expr:
    """Row-major position within ``axes``; for a single axis its variable."""
    total: Expr = Var(axes[0].name, DType.I32, span)
    for a in axes[1:]:
        size: Expr = typed.number(a.extent, span) if isinstance(a.extent, int) else a.extent
        total = typed.arith("add", typed.arith("mul", total, size, span), Var(a.name, DType.I32, span), span)
    return total


def _through(node: ast.Chain, last: int) -> Span:
    """The span of a chain from its first operand to operand ``last``."""
    a, b = node.args[0].span, node.args[last].span
    return Span(a.source, a.line, a.column, b.end_line, b.end_column)


def _count_fault(name: str, want: int, got: int, span: Span, hint: str | None = None) -> Fault:
    return Fault("N0212", f"'{name}' takes {counted(want, 'argument')}, but got {got}", span, hint)
