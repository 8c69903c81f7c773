"""The text form of the Scalar IR: ``parse_program(format_program(p)) == p``.

The statements are written by their own assembly formats, except that a perfect nest of loops of one kind prints on one
line, ``par b in 0..1, h in 0..32 {``, and parses back as nested loops.  A name in an extent is a runtime size.  A name
in an expression is a param where the program declares one, else a variable.
"""

from __future__ import annotations

from typing import cast

from nautilus.core.buffers import Buffer
from nautilus.core.expr.nodes import COMBINERS
from nautilus.core.source import Source
from nautilus.core.text.assembly import DECLARATIONS, STEP, Reader, form_of, format_module
from nautilus.core.text.assembly import grammar as _grammar
from nautilus.core.text.declarations import Declarations, format_buffer, parse_buffer
from nautilus.core.text.tokens import TokenStream
from nautilus.scalar.ir import SCALAR, Kernel, Kind, Loop, Program, Stmt, Store, Update

_KINDS = {k.value: k for k in Kind}
_START = {
    "program": "'program' NAME '{' buffer* param* kernel* '}'",
    **DECLARATIONS,
    "kernel": "'kernel' NAME '{' local* stmt* '}'",
    "local": "'local' NAME ':' dtype '[' extent, ... ']'",
}


def grammar() -> str:
    """The grammar of this text form, from the declarations of the statements."""
    return _grammar(_START, {}, SCALAR.ops, "stmt")


def format_program(p: Program) -> str:
    """The text of a program, ending in a newline."""
    return format_module(f"program {p.name}", p.buffers, p.params, map(format_kernel, p.kernels))


def format_kernel(k: Kernel) -> list[str]:
    """The lines of one kernel."""
    lines = [f"kernel {k.name} {{", *(STEP + format_buffer(b) for b in k.locals)]
    for s in k.body:
        lines += format_stmt(s, 1)
    return [*lines, "}"]


def format_stmt(s: Stmt, depth: int = 0) -> list[str]:
    """The lines of one statement, indented ``depth`` steps."""
    pad, text = STEP * depth, form_of(type(s)).text(s)
    if not isinstance(s, Loop):
        return [pad + text]
    while len(s.body) == 1 and isinstance(s.body[0], Loop) and s.body[0].kind is s.kind:
        s = s.body[0]
        text = f"{text.removesuffix(' {')}, {form_of(Loop).text(s).removeprefix(s.kind.value + ' ')}"
    return [pad + text, *(line for inner in s.body for line in format_stmt(inner, depth + 1)), pad + "}"]


def parse_program(text: str, name: str = "<scalar>") -> Program:
    """Read a program back; ``name`` is the file's, for messages. Raises IRParseError."""
    r = _Reader(TokenStream(Source(name, text)), SCALAR.forms)
    r.ts.expect("program")
    program = r.ts.name()
    declared = Declarations(r.ts, r.params)
    kernels = r.module(lambda _: r.kernel(declared), declared)
    return Program(program, declared.buffers, declared.params, kernels)


class _Reader(Reader):
    def kernel(self, declared: Declarations) -> Kernel:
        ts, span = self.ts, self.ts.span()
        ts.expect("kernel")
        name = ts.name()
        locals_, body = list[Buffer](), list[Stmt]()
        self.buffers.clear()
        self.buffers.update({b.name: b.dtype for b in declared.buffers})
        with ts.braces() as more:
            while more():
                if ts.text == "local" and ts.peek() != "[":
                    locals_.append(parse_buffer(ts))
                    self.buffers[locals_[-1].name] = locals_[-1].dtype
                else:
                    body.append(self.op())
        return Kernel(name, tuple(locals_), tuple(body), span)

    def op(self) -> Stmt:
        """One statement: an update where a combiner stands in front of the ``=``."""
        ts = self.ts
        if ts.text in _KINDS and ts.peek() != "[":
            kind = _KINDS[ts.text]
            ts.pos += 1
            return self.loop(kind)
        cls: type[Stmt] = Store
        if ts.peek() == "[":
            at, depth = 2, 1
            while depth and ts.peek(at):
                depth += (ts.peek(at) == "[") - (ts.peek(at) == "]")
                at += 1
            cls = Update if ts.peek(at) in COMBINERS else Store
            if cls is Store and ts.peek(at) != "=" and not depth:
                ts.pos += at
                ts.fail(f"expected '=' or a combiner, found {ts.describe()}")
        return cast(Stmt, form_of(cls).read_op(self, (), ts.span(), ts.pos))

    def loop(self, kind: Kind) -> Loop:
        """A loop of a nest, behind the word of its kind."""
        ts, span = self.ts, self.ts.span()
        var = ts.name()
        ts.expect("in")
        lo = self.expr()
        ts.expect("..")
        hi = self.expr()
        if ts.accept(","):
            return Loop(var, lo, hi, kind, (self.loop(kind),), span)
        body = list[Stmt]()
        with ts.braces() as more:
            while more():
                body.append(self.op())
        return Loop(var, lo, hi, kind, tuple(body), span)
