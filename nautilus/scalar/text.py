"""The text form of the Scalar IR: ``parse_program(format_program(p)) == p`` (grammar: ``scalar.ir``).

A perfect nest of loops of one kind prints on one line, ``par b in 0..1, h in 0..32 {``, and parses
back as nested loops.  A name in an extent is a runtime size.  A name in an expression is a param
where the program declares one, else a variable.
"""

from __future__ import annotations

from nautilus.core.buffers import Buffer
from nautilus.core.expr.nodes import COMBINERS
from nautilus.core.source import Source
from nautilus.core.text.declarations import Declarations, format_buffer, format_param, parse_buffer
from nautilus.core.text.expressions import ExprParser, format_expr, format_list
from nautilus.core.text.tokens import TokenStream
from nautilus.core.types import DType
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update

_STEP = "  "
_KINDS = {k.value: k for k in Kind}


def format_program(p: Program) -> str:
    """The text of a program, ending in a newline."""
    lines = [f"program {p.name} {{"]
    lines += [_STEP + format_buffer(b) for b in p.buffers]
    lines += [_STEP + format_param(s) for s in p.params]
    for k in p.kernels:
        lines += [_STEP + line for line in format_kernel(k)]
    lines.append("}")
    return "\n".join(lines) + "\n"


def format_kernel(k: Kernel) -> list[str]:
    """The lines of one kernel."""
    lines = [f"kernel {k.name} {{"]
    lines += [_STEP + format_buffer(b) for b in k.locals]
    for s in k.body:
        lines += format_stmt(s, 1)
    lines.append("}")
    return lines


def format_stmt(s: Stmt, depth: int = 0) -> list[str]:
    """The lines of one statement, indented ``depth`` steps."""
    pad = _STEP * depth
    match s:
        case Loop():
            return _loop(s, depth)
        case Store():
            return [f"{pad}{s.buffer}[{format_list(s.index)}] = {format_expr(s.value)}{_where(s)}"]
        case Update():
            return [f"{pad}{s.buffer}[{format_list(s.index)}] {s.op}= {format_expr(s.value)}{_where(s)}"]


def _where(s: Store | Update) -> str:
    return "" if s.guard is None else f" where {format_expr(s.guard)}"


def _loop(s: Loop, depth: int) -> list[str]:
    pad = _STEP * depth
    heads = [_head(s)]
    while len(s.body) == 1 and isinstance(s.body[0], Loop) and s.body[0].kind is s.kind:
        s = s.body[0]
        heads.append(_head(s))
    lines = [f"{pad}{s.kind.value} {', '.join(heads)} {{"]
    for inner in s.body:
        lines += format_stmt(inner, depth + 1)
    lines.append(pad + "}")
    return lines


def _head(s: Loop) -> str:
    return f"{s.var} in {format_expr(s.lo)}..{format_expr(s.hi)}"


# -- parsing ----------------------------------------------------------------------------------


def parse_program(text: str, name: str = "<scalar>") -> Program:
    """Read a program back; ``name`` is the file's, for messages. Raises IRParseError."""
    return _Parser(TokenStream(Source(name, text))).program()


class _Parser:
    def __init__(self, ts: TokenStream) -> None:
        self.ts = ts
        self.buffers: dict[str, DType] = {}
        self.params: dict[str, DType] = {}
        self.ex = ExprParser(ts, self.buffers, self.params)

    def program(self) -> Program:
        ts = self.ts
        ts.expect("program")
        name = ts.name()
        declared = Declarations(ts, self.params)
        kernels: list[Kernel] = []
        with ts.braces() as more:
            while more():
                found = declared.accept()
                if isinstance(found, Buffer):
                    self.buffers[found.name] = found.dtype
                if found is not None:
                    continue
                if ts.text != "kernel":
                    ts.fail(f"expected input, output, temp, param or kernel, found {ts.describe()}")
                kernels.append(self.kernel())
        ts.end()
        return Program(name, declared.buffers, declared.params, tuple(kernels))

    def kernel(self) -> Kernel:
        ts = self.ts
        span = ts.span()
        ts.expect("kernel")
        name = ts.name()
        outer = dict(self.buffers)
        locals_: list[Buffer] = []
        body: list[Stmt] = []
        with ts.braces() as more:
            while more():
                if ts.text == "local" and ts.peek() != "[":
                    locals_.append(parse_buffer(ts))
                    self.buffers[locals_[-1].name] = locals_[-1].dtype
                else:
                    body.append(self.stmt())
        self.buffers.clear()
        self.buffers.update(outer)
        return Kernel(name, tuple(locals_), tuple(body), span)

    def stmt(self) -> Stmt:
        ts = self.ts
        span = ts.span()
        if ts.text in _KINDS and ts.peek() != "[":
            kind = _KINDS[ts.text]
            ts.pos += 1
            return self.loop(kind)
        buffer = ts.name()
        index = ts.brackets(self.ex.parse)
        op = ""
        if ts.text != "=":
            if ts.text not in COMBINERS:
                ts.fail(f"expected '=' or a combiner, found {ts.describe()}")
            op = ts.name()
        ts.expect("=")
        value = self.ex.parse()
        guard = self.ex.parse() if ts.accept("where") else None
        if op:
            return Update(buffer, op, index, value, guard, span)
        return Store(buffer, index, value, guard, span)

    def loop(self, kind: Kind) -> Loop:
        ts = self.ts
        span = ts.span()
        var = ts.name()
        ts.expect("in")
        lo = self.ex.parse()
        ts.expect("..")
        hi = self.ex.parse()
        if ts.accept(","):
            return Loop(var, lo, hi, kind, (self.loop(kind),), span)
        body: list[Stmt] = []
        with ts.braces() as more:
            while more():
                body.append(self.stmt())
        return Loop(var, lo, hi, kind, tuple(body), span)
