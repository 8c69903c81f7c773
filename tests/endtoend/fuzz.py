"""Random valid specs: a sequence of definitions over shared dims, with every construct of the language.

The spec of a seed depends on the seed only.  Values stay moderate (``tanh``, small factors), so that rounding errors
are comparable.  A spec that the frontend rejects is a bug in this file.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import prod

SIZES = (1, 2, 3, 5, 7, 16, 17, 33, 40, 64, 77, 130)
POINTS = 60_000  # of the whole index space
FLOATS = ("f16", "f16", "bf16", "f32", "f32", "tf32", "f64")
INTS = ("i32", "i8", "u8", "i16", "i64")
_UNARY = ("exp(-abs({}))", "tanh({})", "sigmoid({})", "abs({})", "relu({})", "-{}", "square({}) / 4", "sqrt(abs({}))",
          "gelu({})", "sin({})", "clamp({}, -1, 1)", "softplus({})")  # fmt: skip
_ROWWISE = ("softmax", "log_softmax", "rms_norm", "layer_norm", "l2_norm")


@dataclass
class Tensor:
    name: str
    dims: tuple[str, ...]
    kind: str  # float, int, bool or index


@dataclass
class Writer:
    """A program under construction. Later definitions may read ``tensors``."""

    seed: int
    r: random.Random = field(init=False)
    sizes: dict[str, int] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.r = random.Random(self.seed)

    def text(self) -> str:
        r = self.r
        names = r.sample("ABCDEF", r.randint(2, 4))
        while not self.sizes or prod(self.sizes.values()) > POINTS:
            self.sizes = {d: r.choice(SIZES) for d in names}
        head = ["dim " + ", ".join(f"{d} = {n}" for d, n in self.sizes.items())]
        for k in range(r.randint(2, 4)):
            dims = tuple(r.sample(sorted(self.sizes), r.randint(1, min(3, len(self.sizes)))))
            kind = r.choices(("float", "int", "bool"), (7, 2, 1))[0]
            dtype = {"float": r.choice(FLOATS), "int": r.choice(INTS), "bool": "bool"}[kind]
            head.append(f"input X{k}: {dtype}[{', '.join(dims)}]")
            self.tensors.append(Tensor(f"X{k}", dims, kind))
        if r.random() < 0.3:
            head.append("scalar s: f32 = 0.75")
        count = r.randint(1, 5)
        outputs = []
        for k in range(count):
            is_output = k == count - 1 or r.random() < 0.25
            name, dims, kind = self.define(k, typed=not is_output and r.random() < 0.1)
            if is_output:
                dtype = {"float": r.choice(FLOATS), "int": "i32", "bool": "bool"}[kind]
                outputs.append(f"output {name}: {dtype}" + (f"[{', '.join(dims)}]" if dims else ""))
        return "\n".join([*head, *outputs, *self.lines]) + "\n"

    # -- definitions
    def define(self, k: int, *, typed: bool) -> tuple[str, tuple[str, ...], str]:
        r, name = self.r, f"T{k}"
        dims = sorted(self.sizes)
        r.shuffle(dims)
        par = tuple(dims[: r.randint(0, min(3, len(dims)))])
        rest = tuple(d for d in dims if d not in par)
        shape = r.choice(("map", "reduce", "product", "rowwise", "reduce", "product", "count", "arg"))
        kind = "float"
        if shape == "product" and rest:
            value = f"sum[{rest[0].lower()}: {rest[0]}]({self.read((*par, rest[0]))} * {self.read((*par, rest[0]))})"
            if r.random() < 0.5:
                value = f"{value} * 0.125 + {self.value(par, 1)}"
        elif shape == "rowwise" and par:
            f, axis = r.choice(_ROWWISE), r.choice(par)
            guard = f" | {self.condition(par)}" if r.random() < 0.4 else ""
            extra = ", 1e-3" if "norm" in f else ""
            value = f"{f}[{axis.lower()}{guard}]({self.value(par, 1)}{extra})"
            if f == "log_softmax":
                value = f"max({value}, -9)"
        elif shape == "count" and rest:
            kind = "int"
            value = f"sum[{rest[0].lower()}: {rest[0]}](i32({self.condition((*par, rest[0]))}))"
        elif shape == "arg" and rest:
            kind = "int"
            value = f"{r.choice(('argmax', 'argmin'))}[{rest[0].lower()}: {rest[0]}]({self.read((*par, rest[0]))})"
        elif shape == "reduce" and rest:
            value, kind = self.reduce(par, rest)
        else:
            value = self.value(par, 3)
        dtype = f": {r.choice(('f16', 'bf16', 'f32'))}" if kind == "float" and typed else ""
        axes = ", ".join(f"{d.lower()}: {d}" for d in par)
        self.lines.append(f"{name}{dtype}[{axes}] = {value}" if par else f"{name}{dtype} = {value}")
        self.tensors.append(Tensor(name, par, kind))
        return name, par, kind

    def reduce(self, par: tuple[str, ...], rest: tuple[str, ...]) -> tuple[str, str]:
        r = self.r
        over = rest[: r.randint(1, min(2, len(rest)))]
        inner = (*par, *over)
        binder = ", ".join(f"{d.lower()}: {d}" for d in over)
        guard = f" | {self.condition(inner)}" if r.random() < 0.4 else ""
        op = r.choice(("sum", "mean", "max", "min", "any", "all", "prod"))
        if op in ("any", "all"):
            return f"{op}[{binder}{guard}]({self.condition(inner)})", "bool"
        if op == "prod":
            return f"prod[{binder}{guard}](1 + {self.read(inner)} / 2048)", "float"
        value = f"{op}[{binder}{guard}]({self.value(inner, 2)})"
        if op in ("max", "min"):
            return f"max(min({value}, 9.5), -9.5)", "float"
        return (f"{value} / 16" if op == "sum" else f"{value}"), "float"

    # -- values
    def value(self, axes: tuple[str, ...], depth: int) -> str:
        r = self.r
        if depth == 0:
            return self.read(axes)
        a = self.value(axes, depth - 1)
        match r.randint(0, 7):
            case 0 | 1:
                return r.choice(_UNARY).format(f"({a})")
            case 2:
                return f"({a} + {self.read(axes)})"
            case 3:
                return f"({a} * {self.read(axes)})"
            case 4:
                return f"{r.choice(('max', 'min'))}({a}, {self.read(axes)})"
            case 5:
                return f"({a} if {self.condition(axes)} else {self.read(axes)})"
            case 6:
                return f"({a} - {self.read(axes)}) / 2"
        return a

    def read(self, axes: tuple[str, ...]) -> str:
        """A number: a load of a tensor at axes of the right extents, an index, or a constant."""
        r = self.r
        usable = [t for t in self.tensors if set(t.dims) <= set(axes) and t.kind != "bool"]
        if not usable or r.random() < 0.1:
            return r.choice(["0.5", *(f"({a.lower()} / 16)" for a in axes), "1.25"])
        t = r.choice(usable)
        text = self.at(t, axes)
        return f"({text} / 64)" if t.kind == "int" else text

    def at(self, t: Tensor, axes: tuple[str, ...]) -> str:
        index = [d.lower() for d in t.dims]
        guard = ""
        if index and self.r.random() < 0.15:
            k = self.r.randrange(len(index))
            d, n = t.dims[k], self.sizes[t.dims[k]]
            match self.r.randint(0, 3):
                case 0:
                    index[k] = f"{d} - 1 - {d.lower()}"
                case 1:
                    index[k] = f"({d.lower()} * 3 + 1) % {d}"
                case 2:
                    other = self.r.choice(axes)
                    index[k] = f"({other.lower()} + {d.lower()}) % {d}"
                case 3 if n > 1 and t.kind != "bool":
                    index[k], guard = shifted(self.r, d)
        return element(t.name, index, guard)

    def condition(self, axes: tuple[str, ...]) -> str:
        r = self.r
        masks = [t for t in self.tensors if t.kind == "bool" and set(t.dims) <= set(axes)]
        if masks and r.random() < 0.4:
            return self.at(r.choice(masks), axes)
        if not axes:
            return "true" if r.random() < 0.3 else f"{self.read(axes)} > 0.25"
        x, y = r.choice(axes).lower(), r.choice(axes).lower()
        return r.choice((*comparisons(r, x, y), f"{self.read(axes)} > 0.25", f"not {x} // 4 == {y} // 4"))


def shifted(r: random.Random, d: str) -> tuple[str, str]:
    """An index that is off the variable of dim ``d`` by one or two, and the choice of 0 where it is outside."""
    index = f"{d.lower()} + {r.choice((1, -1, 2))}"
    return index, f" if 0 <= {index} < {d} else 0"


def element(name: str, index: list[str], guard: str) -> str:
    """A read of tensor ``name``; ``guard``: the choice after it, or nothing."""
    text = f"{name}[{', '.join(index)}]" if index else name
    return f"({text}{guard})" if guard else text


def comparisons(r: random.Random, x: str, y: str) -> tuple[str, ...]:
    """Conditions on the index variables ``x`` and ``y``."""
    return (
        f"{x} <= {y} + {r.randint(-3, 9)}", f"-{r.randint(0, 5)} <= {x} - {y} < {r.randint(1, 9)}",
        f"{x} % {r.randint(2, 3)} == {r.randint(0, 1)}", f"{x} >= {r.randint(0, 4)} or {y} == 1",
    )  # fmt: skip


def program(seed: int) -> str:
    """The text of program number ``seed``."""
    return Writer(seed).text()
