"""Every function in CUDA C++: the call of its record, and text that NVRTC compiles in f32 and in f64."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var
from nautilus.core.functions import FUNCTIONS, NAMED, Call
from nautilus.core.types import DType
from nautilus.cuda.expr import Speller
from nautilus.cuda.intrinsics import HELPERS
from nautilus.driver import Request, compile_file
from nautilus.runtime.nvrtc import compile_cuda
from tests.check.elementary import ELEMENTARY, NUMERIC


def spec(dtype: str) -> str:
    """A spec with one output for each function."""
    lines = ["dim N = 1000", f"input X: {dtype}[N]", f"input Y: {dtype}[N]"]
    for name in ELEMENTARY:
        call = f"{name}({', '.join(f'{v}[i]' for v in 'XY'[: NAMED[name].arity])})"
        lines += [f"output O_{name}: {dtype}[N]", f"O_{name}[i] = {call}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("precision", ["fast", "strict"])
def test_every_function_compiles(arch: str, dtype: str, precision: str) -> None:
    request = Request(Path("functions.naut"), arch, text=spec(dtype), precision=precision)
    text = compile_file(request).cuda_module.code
    calls = [NAMED[n].c for n in ELEMENTARY if dtype == "f64" or precision == "strict"]
    names = {c.f64 if dtype == "f64" else c.f32 for c in calls if isinstance(c, Call)}
    assert [n for n in names if n.isidentifier() and f"{n}(" not in text] == []
    assert compile_cuda(text, arch).resources


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.I32])
def test_every_function_is_spelled(name: str, dtype: DType) -> None:
    f = FUNCTIONS[name]
    speller = Speller()
    args = ["a", "b", "c"][: f.arity]
    supported = not isinstance(f.c, Call) or (
        f.c.f64 if dtype is DType.F64 else f.c.f32 if dtype.is_float else f.c.integer
    )
    if not supported:
        with pytest.raises(UnsupportedError, match=name):
            speller.op(name, args, [dtype] * f.arity, dtype)
        return
    text = speller.op(name, args, [dtype] * f.arity, dtype)
    assert all(a in text for a in args)
    assert speller.helpers <= HELPERS.keys()


def test_divisions_of_64_bits_by_powers_of_two_are_shifts_and_masks() -> None:
    """They round towards minus infinity, as shifts of numbers in two's complement do."""
    divided = Op("floordiv", (Var("h", DType.I64), Const(65536, DType.I64)), DType.I64)
    whole = Op("mod", (divided, Const(1024, DType.I64)), DType.I64)

    def spelled(e: Expr) -> str:
        return Speller().expr(e, {"h": "a"}, {}, lambda _: "", lambda _: "")

    assert spelled(whole) == "a >> 16 & 1023LL"
    assert "floor_mod" in spelled(Op("mod", (Var("h", DType.I64), Const(1000, DType.I64)), DType.I64))


def test_quotients_of_64_bits_whose_parts_fit_in_32_bits_have_32_bits() -> None:
    wide = Op("mul", (Op("cast", (Var("b", DType.I32),), DType.I64), Const(44099, DType.I64)), DType.I64)

    def spelled(op: str, last: int, by: int, first: int = 0) -> str:
        e = Op(op, (wide, Const(by, DType.I64)), DType.I64)
        return Speller().expr(e, {"b": "b"}, {"b": (first, last)}, lambda _: "", lambda _: "")

    product = "(long long)b * 44099LL"
    assert spelled("floordiv", 48127, 47999) == f"(long long)((u32)({product}) / (u32)47999LL)"
    assert spelled("mod", 48127, 47999) == f"(long long)((u32)({product}) % (u32)47999LL)"
    assert spelled("mod", 100000, 47999) == f"{product} % 47999LL"
    assert "floor_mod" in spelled("mod", 9, 47999, first=-1)


def spelled_at(e: Expr) -> str:
    """The text of ``e`` where nothing is known of its variable ``a`` and of ``b``, which is not negative."""
    return Speller().expr(e, {"a": "a", "b": "b"}, {"b": (0, 99)}, lambda _: "", lambda _: "X[b]")


def test_remainders_by_powers_of_two_are_the_last_bits_of_negative_positions_too() -> None:
    a, b = Var("a", DType.I32), Var("b", DType.I32)
    assert spelled_at(Op("mod", (a, Const(4, DType.I32)), DType.I32)) == "a & 3"
    assert spelled_at(Op("mod", (b, Const(4, DType.I32)), DType.I32)) == "b % 4"
    assert "floor_mod" in spelled_at(Op("mod", (a, Const(6, DType.I32)), DType.I32))


def test_a_condition_after_another_one_is_evaluated_anyway_if_it_divides_and_reads_nothing() -> None:
    a, b = Var("a", DType.I32), Var("b", DType.I32)

    def below(x: Expr, by: int) -> Expr:
        return Op("lt", (Op("floordiv", (x, Const(by, DType.I32)), DType.I32), Const(5, DType.I32)), DType.BOOL)

    def both(x: Expr, y: Expr, op: str = "and") -> str:
        return spelled_at(Op(op, (x, y), DType.BOOL))

    near, read = Op("lt", (a, b), DType.BOOL), Load("X", (b,), DType.I32)
    assert both(near, below(b, 7)) == "(a < b) & (b / 7 < 5)"
    assert both(near, below(b, 7), "or") == "(a < b) | (b / 7 < 5)"
    assert both(below(b, 7), near) == "b / 7 < 5 && a < b"
    assert both(near, below(b, 8)) == "a < b && b / 8 < 5"
    assert both(near, below(read, 7)).startswith("a < b && ")


def test_the_helpers_of_approximations_exist() -> None:
    helpers = {a.function for f in FUNCTIONS.values() for a in f.approximations if a.function}
    names = ("atan2", "div", "exp2", "hypot", "log1p", "log2", "pow", "rcp", "rsqrt", "sqrt", "tanh")
    assert helpers == {f"{name}_approx" for name in names}
    assert helpers <= HELPERS.keys()
    assert {n: Speller().op(n, ["a"], [DType.F32], DType.F32) for n in helpers} == {n: f"{n}(a)" for n in helpers}


def test_an_exact_function_is_not_approximated() -> None:
    spelled = {n: Speller().op(n, ["a"], [DType.F32], DType.F32) for n in ("exp2", "rsqrt", "rcp", "tanh")}
    assert spelled == {"exp2": "exp2f(a)", "rsqrt": "rsqrtf(a)", "rcp": "1.0f / a", "tanh": "tanhf(a)"}


def test_a_variable_never_has_the_name_of_a_function() -> None:
    text = "dim N = 64\ninput log1p: f64[N]\noutput hypot: f64[N]\nhypot[i] = exp(log1p[i]) + 1\n"
    request = Request(Path("names.naut"), "sm_80", text=text.replace("exp(log1p[i])", "erfc(log1p[i])"))
    assert compile_cuda(compile_file(request).cuda_module.code, "sm_80").resources
