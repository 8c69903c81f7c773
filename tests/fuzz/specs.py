"""Random valid specs that reach every construct of the language. A seed always gives the same spec.

Values stay moderate, and conditions depend only on inputs and indices, so that two correct evaluations with different
rounding agree.  The exception are the fills of masked scores, which are as large as those that users write.  A spec
that the frontend rejects is a fault of this file.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import prod

from tests.endtoend import fuzz, fuzz_products
from tests.fuzz import rearrangements, structures

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 40, 64, 65, 77, 100, 128, 130)
POINTS = 40_000  # of the index space of one definition
FLOATS = ("f64", "f32", "f32", "tf32", "f16", "f16", "f16", "bf16", "bf16", "f8e4m3", "f8e5m2")
INTS = ("i64", "i32", "i16", "i8", "u8")

#: functions with an argument of any size, each kept in its domain and small
_SMOOTH = (
    "exp(-abs({}))", "exp2(min({}, 3))", "exp10(min({}, 0.5))", "expm1(min({}, 1))", "log(abs({}) + 0.5)",
    "log2(abs({}) + 0.5)", "log1p(abs({}))", "sqrt(abs({}) + 0.01)", "rsqrt(abs({}) + 0.25)", "sin({})", "cos({})",
    "tan(tanh({}))", "asin(0.9 * tanh({}))", "acos(0.9 * tanh({}))", "atan({})", "sinh(tanh({}))", "cosh(tanh({}))",
    "asinh({})", "acosh(1.5 + abs({}))", "atanh(0.9 * tanh({}))", "tanh({})", "sigmoid({})", "erf({})", "erfc({})",
    "cbrt(abs({}) + 0.1)", "abs({})", "-{}", "relu({})", "leaky_relu({}, 0.1)", "silu({})", "gelu({})",
    "gelu_tanh({})", "softplus({})", "mish({})", "elu({}, 1)", "selu({})", "hardswish({})", "softcap({}, 4)",
    "clamp({}, -1, 1)", "square(tanh({}))", "tanh({}) ** 3", "pow(abs({}) + 0.5, 1.5)", "1 / (1 + abs({}))",
    "({}) / 3", "2 * ({}) - 0.5",
)  # fmt: skip
_PAIRS = (
    "({} + {})", "({} - {})", "(tanh({}) * {})", "max({}, {})", "min({}, {})", "hypot({}, {})",
    "({}) / (1.5 + abs({}))", "atan2({}, 1.5 + abs({}))",
)  # fmt: skip
#: discontinuous functions, for exact arguments alone
_STEPS = ("floor({})", "ceil({})", "round({})", "round_even({})", "sign({})", "fmod({}, 1.5)")
_ROWWISE = ("softmax", "log_softmax", "rms_norm", "layer_norm", "l2_norm", "balance")
_COLLAPSING = ("logsumexp", "variance", "std", "total")
_FILLS = ("0", "-1e4", "-1e9", "-1e30", "-inf")


@dataclass(frozen=True)
class Tensor:
    """``kind``: float, int, bool, or the dim that the elements are positions of. ``exact``: an input."""

    name: str
    dims: tuple[str, ...]
    kind: str
    exact: bool = True


@dataclass
class Writer:
    """A spec under construction."""

    r: random.Random
    sizes: dict[str, int] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    functions: bool = False
    number: bool = False

    def text(self) -> str:
        r = self.r
        self.sizes = {d: r.choice(SIZES) for d in r.sample("ABCDE", r.randint(2, 4))}
        dims = [f"{d} = {n}" for d, n in self.sizes.items()]
        self.head += [f"dim {', '.join(dims)}"] if r.random() < 0.7 else [f"dim {d}" for d in dims]
        if r.random() < 0.3:
            self.functions = True
            self.head.append("def mix(x, y) = 0.25 * x + 0.75 * y")
            self.head.append("def balance[j | c](x) = x / (1 + sum[j | c](abs(x))) if c else 0")
            self.head.append("def total[j | c](x) = sum[j | c](x) / 8")
        for k in range(r.randint(2, 4)):
            self.input(k)
        if r.random() < 0.3:
            self.number = True
            self.head.append(r.choice(("scalar s: f32 = 0.75", "scalar s: f32", "scalar s: f16 = 0.5")))
        count = r.randint(1, 5)
        for k in range(count):
            is_output = k == count - 1 or r.random() < 0.25
            self.definition(f"T{k}", is_output)
        if r.random() < 0.3:
            r.shuffle(self.lines)
        return "\n".join([*self.head, *self.lines]) + "\n"

    def pick(self, most: int) -> tuple[str, ...]:
        """Up to ``most`` dims in random order, within POINTS."""
        found = self.r.sample(sorted(self.sizes), min(len(self.sizes), self.r.randint(0, most)))
        while prod(self.sizes[d] for d in found) > POINTS:
            found.pop()
        return tuple(found)

    def input(self, k: int) -> None:
        r, dims = self.r, self.pick(3)
        kind = r.choices(("float", "int", "bool", "position"), (12, 2, 2, 2))[0]
        if kind == "position":
            kind = r.choice(sorted(self.sizes))
            dtype = r.choice(("i32", "i32", "i64", "i16"))
        else:
            dtype = {"float": r.choice(FLOATS), "int": r.choice(INTS), "bool": "bool"}[kind]
        self.head.append(f"input X{k}: {dtype}" + (f"[{', '.join(dims)}]" if dims else ""))
        self.tensors.append(Tensor(f"X{k}", dims, kind))

    # -- definitions
    def definition(self, name: str, is_output: bool) -> None:
        r, par = self.r, self.pick(3)
        rest = [d for d in sorted(self.sizes) if d not in par]
        rest = [d for d in rest if prod(self.sizes[x] for x in (*par, d)) <= POINTS]
        r.shuffle(rest)
        shape = r.choice(
            ("map", "map", "reduce", "reduce", "product", "product", "product", "rowwise", "window", "argument",
             "logic", "integer", "masked")
        )  # fmt: skip
        value, kind = self.body(shape, par, tuple(rest))
        dtype = {"float": r.choice(FLOATS), "int": "i32", "bool": "bool"}[kind]
        axes = ", ".join(f"{d.lower()}: {d}" for d in par)
        typed = f": {r.choice(('f16', 'bf16', 'f32', 'f64'))}" if r.random() < 0.1 and kind == "float" else ""
        if is_output:
            typed = ""
            self.head.append(f"output {name}: {dtype}" + (f"[{', '.join(par)}]" if par else ""))
        self.lines.append(f"{name}{typed}[{axes}] = {value}" if par else f"{name}{typed} = {value}")
        self.tensors.append(Tensor(name, par, kind, exact=False))

    def body(self, shape: str, par: tuple[str, ...], rest: tuple[str, ...]) -> tuple[str, str]:
        """The expression of a definition over ``par`` and its kind."""
        r = self.r
        if shape == "product" and rest:
            inner = (*par, rest[0])
            factors = [self.factor(inner) for _ in range(r.choice((2, 2, 2, 3)))]
            value = f"sum[{self.binder(rest[:1])}{self.guard(inner, 0.2)}]({' * '.join(factors)}) / 8"
            return (f"{value} + {self.value(par, 1)}" if r.random() < 0.4 else value), "float"
        if shape == "masked" and rest:
            inner = (*par, rest[0])
            fill, weight = r.choice(_FILLS), self.read(inner)
            score = f"({self.value(inner, 1)} if {self.condition(inner)} else {fill})"
            if fill == "-inf":
                return f"sum[{self.binder(rest[:1])}](exp({score} - 2) * {weight})", "float"
            j = self.binder(rest[:1])
            top = f"max[{j}]({score})"
            return f"sum[{j}](exp({score} - {top}) * {weight}) / sum[{j}](exp({score} - {top}))", "float"
        if shape == "rowwise" and par:
            f = r.choice(_ROWWISE[: None if self.functions else -1])
            value = f"{f}[{r.choice(par).lower()}{self.guard(par, 0.4)}]({self.value(par, 1)}"
            value += ", 1e-3)" if "norm" in f else ")"
            return (f"max({value}, -9)" if f == "log_softmax" else value), "float"
        if shape == "argument" and rest:
            exact = self.exact((*par, rest[0]))
            return f"{r.choice(('argmax', 'argmin'))}[{self.binder(rest[:1])}]({exact})", "int"
        if shape == "logic" and rest:
            inner = (*par, *rest[:1])
            op = r.choice(("any", "all"))
            return f"{op}[{self.binder(rest[:1])}{self.guard(inner, 0.3)}]({self.condition(inner)})", "bool"
        if shape == "integer":
            inner = (*par, *rest[:1])
            if rest and r.random() < 0.6:
                return f"sum[{self.binder(rest[:1])}]({self.integer(inner)})", "int"
            return self.integer(par), "int"
        if shape == "window" and par:
            return self.window(par), "float"
        if shape == "reduce" and rest:
            return self.reduction(par, rest), "float"
        return self.value(par, 3), "float"

    def binder(self, dims: tuple[str, ...]) -> str:
        return ", ".join(f"{d.lower()}: {d}" for d in dims)

    def guard(self, axes: tuple[str, ...], share: float) -> str:
        return f" | {self.condition(axes)}" if axes and self.r.random() < share else ""

    def reduction(self, par: tuple[str, ...], rest: tuple[str, ...]) -> str:
        r = self.r
        over = rest[:1]
        for d in rest[1 : r.randint(1, 3)]:
            if prod(self.sizes[x] for x in (*par, *over, d)) <= POINTS:
                over = (*over, d)
        inner, op = (*par, *over), r.choice(("sum", "mean", "max", "min", "prod", "nested", "collapse"))
        if op == "collapse":
            f = r.choice(_COLLAPSING[: None if self.functions else -1])
            return f"clamp({f}[{self.binder(over[:1])}]({self.value((*par, over[0]), 1)}), -9, 9)"
        if op == "nested" and len(over) > 1:
            deep = (
                f"{r.choice(('max', 'sum'))}[{self.binder(over[1:])}{self.guard(inner, 0.3)}]({self.value(inner, 1)})"
            )
            return f"sum[{self.binder(over[:1])}](tanh({deep})) / 8"
        if op == "prod":
            return f"prod[{self.binder(over)}](1 + {self.read(inner)} / 4096)"
        op = "max" if op == "nested" else op
        value = f"{op}[{self.binder(over)}{self.guard(inner, 0.4)}]({self.value(inner, 2)})"
        return f"clamp({value}, -9, 9)" if op in ("max", "min", "mean") else f"{value} / 16"

    def window(self, par: tuple[str, ...]) -> str:
        """A sum of neighbours along one axis, which are 0 outside of the tensor."""
        r = self.r
        usable = [t for t in self.tensors if t.kind == "float" and t.dims and set(t.dims) <= set(par)]
        if not usable:
            return self.value(par, 2)
        t = r.choice(usable)
        k, at = r.randrange(len(t.dims)), [d.lower() for d in t.dims]
        d, i = t.dims[k], at[k]
        width, step = r.choice((1, 2, 3, 4)), r.choice((1, 1, 2))
        position = f"{i} + {step} * w - {r.randint(0, width)}"
        at[k] = position
        weight = r.choice(("", " * (w + 1) / 4", " * exp(-f32(w))"))
        if r.random() < 0.5:
            return f"sum[w: {width} | 0 <= {position} < {d}]({t.name}[{', '.join(at)}]{weight})"
        return f"sum[w: {width}](({t.name}[{', '.join(at)}] if 0 <= {position} and {position} < {d} else 0){weight})"

    # -- values
    def factor(self, axes: tuple[str, ...]) -> str:
        """A factor of a product: mostly a load, sometimes computed or converted."""
        r, a = self.r, self.read(axes)
        return r.choice((a, a, a, a, f"relu({a})", f"tanh({a})", f"f16({a})", f"bf16({a})", f"(0.5 * {a})"))

    def value(self, axes: tuple[str, ...], depth: int) -> str:
        r = self.r
        if depth == 0:
            return self.read(axes)
        a = self.value(axes, depth - 1)
        match r.randint(0, 9):
            case 0 | 1 | 2:
                return r.choice(_SMOOTH).format(a)
            case 3 | 4:
                return r.choice(_PAIRS).format(a, self.read(axes))
            case 5:
                return f"({a} if {self.condition(axes)} else {self.read(axes)})"
            case 6:
                return f"({a} + {r.choice(_STEPS).format(self.exact(axes))} / 8)"
            case 7:
                return f"{r.choice(('f32', 'f16', 'bf16', 'f64'))}({a})"
            case 8 if self.functions:
                return f"mix({a}, {self.read(axes)})"
        return a

    def read(self, axes: tuple[str, ...]) -> str:
        usable = [t for t in self.tensors if t.kind != "bool" and set(t.dims) <= set(axes)]
        if not usable or self.r.random() < 0.1:
            pool = ["0.5", "1.25", "-2", *(f"({a.lower()} / 16)" for a in axes), *(["s"] if self.number else [])]
            if len(axes) > 1:
                pool.append(f"exp(-f32(abs({axes[0].lower()} - {axes[1].lower()})))")
            return self.r.choice(pool)
        t = self.r.choice(usable)
        return self.at(t, axes) if t.kind == "float" else f"({self.at(t, axes)} / 64)"

    def exact(self, axes: tuple[str, ...]) -> str:
        """A value without rounding: an element of an input, an integer, or a constant."""
        usable = [t for t in self.tensors if t.exact and t.kind != "bool" and set(t.dims) <= set(axes)]
        return self.at(self.r.choice(usable), axes) if usable else self.r.choice(["1", *(a.lower() for a in axes)])

    def integer(self, axes: tuple[str, ...]) -> str:
        r = self.r
        usable = [t for t in self.tensors if t.kind not in ("float", "bool") and set(t.dims) <= set(axes)]
        pool = [f"i32({self.at(t, axes)})" for t in usable] + [a.lower() for a in axes] + ["3"]
        a, b = r.choice(pool), r.choice(pool)
        chosen = f"({a} if {self.condition(axes)} else {b})"
        return r.choice((
            a, f"({a} + {b})", f"({a} * 2 - {b})", f"({a} // {r.choice((2, 3, 7))})", f"({a} % {r.choice((2, 5, 8))})",
            f"max({a}, {b})", f"abs({a} - {b})", f"({a} {r.choice('&|^')} {b})",
            f"(~{a} ^ {b} >> {r.choice((1, 2, 40))})", f"({a} << ({b} & {r.choice((3, 7))}))",
            f"i32({self.condition(axes)})", chosen,
        ))  # fmt: skip

    def at(self, t: Tensor, axes: tuple[str, ...]) -> str:
        r, index = self.r, [d.lower() for d in t.dims]
        guard = ""
        if index and r.random() < 0.25:
            k = r.randrange(len(index))
            d, n = t.dims[k], self.sizes[t.dims[k]]
            tables = [x for x in self.tensors if x.kind == d and set(x.dims) <= set(axes)]
            match r.randint(0, 6):
                case 0:
                    index[k] = f"{d} - 1 - {d.lower()}"
                case 1:
                    index[k] = f"({d.lower()} * 3 + 1) % {d}"
                case 2:
                    index[k] = f"({r.choice(axes).lower()} + {d.lower()}) % {d}"
                case 3:
                    index[k] = f"{d.lower()} // {r.choice((2, 3, 4))}"
                case 4 | 5 if tables:
                    x = r.choice(tables)
                    index[k] = f"{x.name}[{', '.join(y.lower() for y in x.dims)}]" if x.dims else x.name
                case 6 if n > 1 and t.kind != "bool":
                    index[k], guard = fuzz.shifted(r, d)
        return fuzz.element(t.name, index, guard)

    def condition(self, axes: tuple[str, ...]) -> str:
        r = self.r
        masks = [t for t in self.tensors if t.kind == "bool" and t.exact and set(t.dims) <= set(axes)]
        if masks and r.random() < 0.35:
            return self.at(r.choice(masks), axes)
        if not axes:
            return r.choice(("true", "false", f"{self.exact(axes)} > 0.25"))
        x, y = r.choice(axes).lower(), r.choice(axes).lower()
        form = r.choice((
            *fuzz.comparisons(r, x, y),
            f"{self.exact(axes)} > 0.25", f"not {x} // 4 == {y} // 4", f"{x} != {y} and {x} < {r.randint(1, 40)}",
            f"abs({x} - {y}) <= {r.randint(0, 9)}", f"{x} > {y} > 0", f"{x} * {r.randint(1, 3)} < {y} + 20",
            f"({x} + {y}) % 3 != 0", "true", f"{x} < {y} or {x} // 8 == {y} // 8",
        ))  # fmt: skip
        return f"({form})" if r.random() < 0.9 else f"(not ({form}))"


def language(seed: int) -> str:
    """A spec with every construct of the language."""
    return Writer(random.Random(seed)).text()


#: generators by name
GENERATORS = {
    "language": language,
    "chains": fuzz.program,
    "products": fuzz_products.program,
    "structures": structures.program,
    "decisions": structures.decisions,
    "forms": structures.forms,
    "rules": structures.rules,
    "rearrangements": rearrangements.program,
}
