"""Declared ops: one text format each, and errors at import for what is not declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from nautilus.core.expr.nodes import Const, Expr, Var
from nautilus.core.op_fields import (
    CARRIED,
    CLOSED_EXPR,
    EXPR,
    INTEGER,
    LITERAL,
    NAME,
    OPERAND,
    OPERANDS,
    REGION,
    RESULTS,
    TYPE,
    UNWRITTEN,
    VARIABLE,
    flag,
)
from nautilus.core.ops import RESULT, SPAN, Effect, Kind, Level, declaration, declare, map_fields, op, part, walk
from nautilus.core.source import Source, Span
from nautilus.core.text.assembly import Reader, format_op, format_ops, grammar
from nautilus.core.text.tokens import IRParseError, TokenStream
from nautilus.core.tiles import TileType
from nautilus.core.types import DType


@part("$type")
class Val:
    name: str = declare(UNWRITTEN)
    type: TileType = declare(TYPE)


TOY = Level("toy", "value", Val)


@op(TOY, "make $value")
class Make:
    result: Val = declare(RESULT)
    value: int | float | bool = declare(LITERAL)
    span: Span = SPAN


@op(TOY, "put $value( at $at( by $step)?)?( $loud)?", Effect.FENCE)
class Put:
    value: Val = declare(OPERAND)
    at: Expr | None = declare(CLOSED_EXPR, default=None)
    step: int = declare(INTEGER, default=1)
    loud: bool = declare(flag("loud"), default=True)
    span: Span = SPAN


@op(TOY, "keep $count( $values)?", Effect.FENCE)
class Keep:
    count: int = declare(INTEGER)
    values: tuple[Val, ...] = declare(OPERANDS, default=())
    span: Span = SPAN


@op(TOY, "for $var in $lo..$hi carry($carried) {$body yield $yields}")
class Loop:
    results: tuple[Val, ...] = declare(RESULTS)
    var: str = declare(VARIABLE)
    lo: Expr = declare(EXPR)
    hi: Expr = declare(EXPR)
    carried: tuple[tuple[Val, Val], ...] = declare(CARRIED)
    body: tuple[Any, ...] = declare(REGION)
    yields: tuple[Val, ...] = declare(OPERANDS)
    span: Span = SPAN


TOY.close(Make | Put | Keep | Loop)

TEXT = """\
%a = make 2.0 : f32
put %a
put %a loud
put %a at 3 loud
put %a at (i + 1) by 4
put %a at 0 by 2
keep 1
%b = make true : bool
keep 2 %a, %b
%r, %s = for i in 0..4 carry(%x = %a, %y = %b) {
  %c = make -1.0 : f32
  for j in 0..i carry() {
    put %x
    yield
  }
  yield %c, %y
}
put %r
"""


def read(text: str) -> tuple[Any, ...]:
    r = Reader(TokenStream(Source("toy", text)), TOY.forms)
    out = []
    while r.ts.kind != "end":
        out.append(r.op())
    return tuple(out)


def test_texts_and_ops_are_one() -> None:
    ops = read(TEXT)
    assert "\n".join(format_ops(ops)) + "\n" == TEXT
    assert read("\n".join(format_ops(ops))) == ops
    assert [type(x) for x in ops] == [Make, Put, Put, Put, Put, Put, Keep, Make, Keep, Loop, Put]
    a, b = ops[0].result, ops[7].result
    assert (a, b) == (Val("a", TileType(DType.F32)), Val("b", TileType(DType.BOOL)))
    assert ops[1] == Put(a, loud=False) and ops[2] == Put(a) and ops[3].at == Const(3, DType.I32)
    assert (ops[4].step, ops[4].loud) == (4, False)
    assert ops[8] == Keep(2, (a, b)) and ops[0].value == 2.0
    assert [v.name for v in ops[9].results] == ["r", "s"] and ops[9].results[1].type == b.type
    assert format_op(ops[9]) == "%r, %s = for i in 0..4 carry(%x = %a, %y = %b) {"
    assert [x.span.line for x in ops] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18]


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("put %z", "unknown value %z", 5),
        ("put", "expected a value (%name), found the end of the text", 4),
        ("shut %a", "expected an operation, found 'shut'", 1),
        ("make 1.0 : f32", "expected an operation, found 'make'", 1),
        ("%a = shut 1", "unknown operation 'shut'", 6),
        ("%a = put %a", "unknown operation 'put'", 6),
        ("%a = 7", "expected an operation, found '7'", 6),
        ("%a = make x : f32", "expected a literal, found 'x'", 11),
        ("%a = make 1.5 : i32", "the literal 1.5 is not of type i32", 11),
        ("%a = make 1.5", "expected ':', found the end of the text", 14),
        ("%a, %b = make 1.5 : f32", "only a loop defines several values", 10),
        ("%a = for i in 0..4 carry() { yield }", "1 result(s) for 0 carried value(s)", 1),
        ("for i in 0..4 carry() { yield %a }", "unknown value %a", 31),
        ("for i in 0..4 carry() {", "expected '}', found the end of the text", 24),
        ("for i in 0..4 carry() { %a = make 1.0 : f32 yield } put %a", "unknown value %a", 57),
    ],
)
def test_errors_have_a_place(text: str, message: str, column: int) -> None:
    with pytest.raises(IRParseError) as e:
        read(text)
    assert e.value.message == message and e.value.span.column == column


def test_tables() -> None:
    ops = read(TEXT)
    a, b, loop = ops[0].result, ops[7].result, ops[9]
    d = declaration(Loop)
    assert [v.name for v in d.operands(loop)] == ["a", "b", "c", "y"]
    assert [v.name for v in d.results(loop)] == ["r", "s"] and [v.name for v in d.arguments(loop)] == ["x", "y"]
    assert d.expressions(loop) == (Const(0, DType.I32), Const(4, DType.I32)) and d.variables(loop) == ("i",)
    assert declaration(Put).expressions(ops[1]) == () and declaration(Put).expressions(ops[3]) == (ops[3].at,)
    assert declaration(Keep).operands(ops[8]) == (a, b) and declaration(Make).operands(ops[0]) == ()
    assert [type(x) for x in walk((loop,))] == [Loop, Make, Loop, Put]
    new = map_fields(loop, {Kind.OPERAND: lambda v: b if v == a else v, Kind.EXPR: lambda _: Var("n")})
    assert [init for _, init in new.carried] == [b, b] and new.lo == Var("n") and new.body == loop.body
    assert map_fields(loop, {Kind.SLOT: lambda s: None}) is loop


def test_grammar() -> None:
    @part("toy $name")
    class Toy:
        name: str = declare(NAME)

    assert grammar(Toy, TOY.ops, Val) == (
        "toy      := 'toy' NAME\n"
        "type     := dtype ['[' axes ']']\n"
        "axes     := [AXIS ':' NUMBER, ...]\n"
        "value    := '%'NAME\n"
        "op       := value '=' 'make' number ':' type\n"
        "         | 'put' value ['at' (NUMBER | '(' expr ')') ['by' NUMBER]] ['loud']\n"
        "         | 'keep' NUMBER [value, ...]\n"
        "         | [value, ... '='] 'for' NAME 'in' expr '..' expr 'carry' '(' value '=' value, ... ')'"
        " '{' op* 'yield' value, ... '}'\n"
    )


def test_a_missing_declaration_is_an_error_at_import() -> None:
    level = Level("odd", "value")
    with pytest.raises(TypeError, match=r"A\.count has no role"):

        @op(level, "a $name", Effect.FENCE)
        class A:
            name: str = declare(NAME)
            count: int = field(default=1)
            span: Span = SPAN

    with pytest.raises(TypeError, match="the format 'b' lacks name"):

        @op(level, "b", Effect.FENCE)
        class B:
            name: str = declare(NAME)
            span: Span = SPAN

    with pytest.raises(TypeError, match=r"has no field \$nome"):

        @op(level, "c $nome", Effect.FENCE)
        class C:
            name: str = declare(NAME)
            span: Span = SPAN

    with pytest.raises(TypeError, match="D declares no result, region, write or effect"):

        @op(level, "d $value")
        class D:
            value: Val = declare(OPERAND)
            span: Span = SPAN


def test_a_level_has_every_op_once() -> None:
    level = Level("odd", "value")

    @op(level, "e", Effect.FENCE)
    class E:
        span: Span = SPAN

    @dataclass(frozen=True)
    class Stranger:
        pass

    with pytest.raises(TypeError, match=r"(E and F|F and E) both begin with e"):

        @op(level, "e", Effect.WAIT)
        class F:
            span: Span = SPAN

    with pytest.raises(TypeError, match=r"not both declared and listed: .*Stranger"):
        level.close(E | Stranger)
    with pytest.raises(TypeError, match=r"rules: missing or unknown: \w+"):
        level.complete({}, "rules")
    with pytest.raises(TypeError, match="Stranger is not a declared op"):
        list(walk((Stranger(),)))
