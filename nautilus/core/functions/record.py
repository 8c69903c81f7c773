"""The record of one elementwise function, from whose entries every stage derives its table.

Entries that a stage needs have no defaults, so a record without one of them is an error when
``nautilus.core.functions`` is imported.  Entries that depend on each other are checked in ``__post_init__``.

numpy is not imported here: ``numpy`` names the function, and ``core.numerics`` binds it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

from nautilus.core.functions.intervals import Interval
from nautilus.core.records import dataclass


class Types(enum.Enum):
    """The argument and result types of a function; T is a compute type (f32 f64 i32 i64 bool)."""

    NUMBER = "T, T, ... -> T, T not bool"
    ANY = "T, T, ... -> T"
    FLOAT = "T, T, ... -> T, T f32 or f64"
    COMPARISON = "T, T -> bool"
    INTEGER = "T, T, ... -> T, T i32 or i64"
    LOGIC = "bool, ... -> bool"
    SELECT = "bool, T, T -> T, T any type"
    CONVERSION = "T -> the type that is written"


@dataclass(frozen=True, slots=True)
class Call:
    """A call in CUDA C++: of the math library, or of a helper of ``cuda.intrinsics``.

    A text with ``{0}`` is an expression in the arguments instead of a name; '' is a type that is not supported.
    """

    f32: str
    f64: str
    integer: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The C functions and helpers among the entries."""
        return tuple(n for n in (self.f32, self.f64, self.integer) if n.isidentifier())


@dataclass(frozen=True, slots=True)
class Operator:
    """An infix operator of CUDA C++ and its binding strength (larger binds tighter)."""

    symbol: str
    strength: int


@dataclass(frozen=True, slots=True)
class Steps:
    """Where a function of floats jumps: at ``(n + offset) * period`` of its first argument, for all integers ``n``.

    ``period``: 0: at 0 alone; None: the magnitude of the second argument.  ``whole``: the values are integers.
    """

    period: float | None
    offset: float = 0.0
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Singular:
    """A point at which a function of floats has no bounded derivative, or at which it jumps.

    ``distance``: from the point, in the text form of expressions in the arguments x, y.  ``power``: at the distance
    ``s``, errors grow as ``s ** -power``; None: the function jumps.  ``one_sided``: it has no value on the other side.
    """

    distance: str
    power: float | None
    one_sided: bool = False


@dataclass(frozen=True, slots=True)
class Approximation:
    """A cheaper form of a function in f32 that ``--precision fast`` allows.

    ``function`` is the function that replaces it in the IR, '' where a pass builds the form from other operations.
    The error is ``ulps``, or ``relative`` (0: it is ``ulps``), of which the form over the reals has ``form_error``.
    ``large`` and ``absolute``: results of at least 1 have at most so many ulps, and the others the absolute error of
    ``absolute`` ulps of 1, unless ``ulps`` are fewer (0: all have ``ulps``).
    ``at_one``: those of results close to 1, from which they grow to ``ulps`` at 0 (0: all have ``ulps``).
    ``narrow``: only where the result is rounded to an output of at most 16 bits.  ``slots`` and ``special``: of
    ``function``, and ``integer`` those of the slots that the integer unit executes.
    """

    form: str
    function: str = ""
    ulps: float = 0.0
    relative: float = 0.0
    form_error: float = 0.0
    large: float = 0.0
    absolute: float = 0.0
    at_one: float = 0.0
    narrow: bool = False
    slots: float = 0.0
    special: float = 0.0
    integer: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One elementwise function.

    * ``numpy``: ``np.NAME`` or ``arrays.NAME`` (``core.functions.arrays``); '' where the interpreters have a rule;
    * ``python``: the value for finite Python numbers, for constant folding; may raise ArithmeticError or ValueError.
      None: a constant is not folded by value;
    * ``interval``: an interval of the results from intervals of the arguments; None: nothing is known;
    * ``c``: CUDA C++; None: ``cuda.expr`` has a rule;
    * ``ulps``: the error of ``c`` in f32 and f64: 0 exact, 0.5 correctly rounded, else at least the maximum that the
      CUDA C++ Programming Guide states ("Mathematical Functions", "Standard Functions": the difference in ulp from
      the correctly rounded result);
    * ``scales_argument``: a form multiplies the argument by a constant first (``exp(x)`` is ``exp2(x * log2 e)``, and
      ``x`` may be a difference whose terms are multiplied one by one), so the terms of the argument are rounded again;
    * ``slots``, ``special``: issue slots, and results of the special-function unit, for one f32 result;
    * ``issued``: instructions of the machine code for one f32 result, where they are not as many as ``slots``, which
      rules of the planner compare; :attr:`instructions` is what the cost model counts;
    * ``integer``: how many of the instructions for floats the integer unit executes, at half the rate or less:
      comparisons, extrema, selections, and the parts of functions that take numbers apart;
    * ``branches``: the code of floats has a branch, so that a thread computes one result after another;
    * ``torch``: a function ``torch.NAME``, or an expression with ``{0}``; '' where ``bench.peers.text`` has a rule;
    * ``example``: an expression that calls the function by its name, for the language reference; '' where specs do not
      call it; ``symbol``: a spec writes this operator;
    * ``elementary``: a function of the math library or of the special-function unit, which costs more than arithmetic;
    * ``skips``: (g, n): the value is g(x, y) = x where y is n, and a warp skips the operation if all its y are n;
    * ``native``: numpy's result in f32 and in integers (``any``) or in f32 (``float``) is the correctly rounded one;
    * ``derivative``: one for each argument (x, y, z), in the text form of expressions; () where it has none or none
      is known; ``inverse``: g with f(g(y)) = y for every y in the range of f, '' where no function is;
    * ``steps``, ``singular``: where a small error of an argument is a large one of the result.  A function that specs
      call and that has neither is tried at :data:`_TRIED`: a jump, a pole or a steep slope there is an error.
    """

    name: str
    doc: str
    arity: int
    types: Types
    numpy: str
    python: Callable[..., Any] | None
    interval: Callable[..., Interval] | None
    c: Call | Operator | None
    ulps: tuple[float, float]
    slots: float
    special: float
    torch: str
    derivative: tuple[str, ...]
    inverse: str = ""
    scales_argument: bool = False
    example: str = ""
    symbol: str = ""
    elementary: bool = False
    skips: tuple[str, float] | None = None
    native: Literal["", "any", "float"] = ""
    approximations: tuple[Approximation, ...] = ()
    steps: Steps | None = None
    singular: Singular | None = None
    issued: float = 0.0
    integer: float = 0.0
    branches: bool = False

    @property
    def instructions(self) -> float:
        """Instructions of the machine code for one f32 result."""
        return self.issued or self.slots

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise ValueError(f"function {self.name}: {problem}")

    def _problem(self) -> str:
        """The missing or wrong entry as a message; '' if there is none."""
        if not (self.name.isidentifier() and self.doc and 1 <= self.arity <= 3):
            return "a name, a one-line doc and an arity of 1 to 3 are needed"
        if self.example and not self.example.startswith(f"{self.name}("):
            return "the example does not call the function"
        if self.derivative and len(self.derivative) != self.arity:
            return f"{self.arity} derivatives are needed, or none"
        if self.numpy and not self.numpy.startswith(("np.", "arrays.")):
            return "numpy names np.NAME or arrays.NAME"
        structural = self.types in (Types.SELECT, Types.CONVERSION)
        if not self.numpy and self.types is not Types.CONVERSION:
            return "the numpy meaning is missing"
        if self.python is None and not structural:
            return "the meaning for Python numbers is missing"
        if self.interval is None and self.types in (Types.NUMBER, Types.ANY, Types.FLOAT, Types.INTEGER):
            return "the interval rule is missing"
        floats, integers = self.types is not Types.INTEGER, self.types is not Types.FLOAT
        if isinstance(self.c, Call) and ((floats and not self.c.f32) or (integers and not self.c.integer)):
            return "a C spelling is missing for a type that the function takes"
        if self.elementary and not (all(self.ulps) and self.torch):
            return "the error in ulp or the torch name is missing"
        if any((a.ulps > 0) is (a.relative > 0) for a in self.approximations):
            return "an approximation states its error in ulp or as a relative error"
        called = self.types in (Types.NUMBER, Types.FLOAT) and (self.example or self.symbol)
        if called and self.steps is None and self.singular is None and (at := _irregular(self)):
            return f"steps or a singular point is missing at {at}"
        return ""

    @property
    def is_rounding(self) -> bool:
        """Whether the function rounds to an integer, so that an integer is its own value."""
        return self.steps is not None and self.steps.period == 1.0

    @property
    def is_exact(self) -> bool:
        """Whether the result is never rounded."""
        return self.ulps == (0.0, 0.0)

    @property
    def keeps_zero(self) -> bool:
        """Whether f(0) is 0."""
        if self.types is Types.CONVERSION:
            return True
        if self.arity != 1 or self.python is None or self.types not in (Types.NUMBER, Types.FLOAT):
            return False
        try:
            return bool(self.python(0.0) == 0.0)
        except (ArithmeticError, ValueError):
            return False


#: Where functions have jumps, poles and steep slopes, if they have any.
_TRIED = (0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, math.pi / 2)
_NEAR, _STEEP = 1e-9, 1e3


def _irregular(f: Function) -> str:
    """The first of the tried arguments at which ``f`` has no bounded derivative; '' where it has one at all."""
    assert f.python is not None
    value, others = f.python, ((),) if f.arity == 1 else ((1.0,) * (f.arity - 1), (-1.0,) * (f.arity - 1))
    for rest in others:
        for at in _TRIED:
            for n in range(f.arity):
                points = [(*rest[:n], at + s * _NEAR, *rest[n:]) for s in (-1, 0, 1)]
                sides = [_real(value, p) for p in points]
                if any(x is not None for x in sides) and not all(
                    a is not None and b is not None and abs(a - b) <= _STEEP * _NEAR for a, b in pairwise(sides)
                ):
                    return str(points[1])
    return ""


def _real(value: Callable[..., Any], at: tuple[float, ...]) -> float | None:
    """The value at a point; None where it is no real number."""
    try:
        found = value(*at)
    except (ArithmeticError, ValueError):
        return None
    return None if isinstance(found, complex) else float(found)


def approximated(f: Function, a: Approximation) -> Function:
    """The f32 function that computes ``f`` as ``a`` says; it has the name of a helper of ``cuda.intrinsics``."""
    ulps = a.ulps or a.relative * 2.0**23
    return replace(
        f, name=a.function, doc=f"{f.name} by {a.form}; the compiler makes it", c=Call(a.function, ""),
        ulps=(ulps, ulps), slots=a.slots, special=a.special, example="", symbol="", elementary=False,
        types=Types.FLOAT, native="", approximations=(), issued=0.0, integer=a.integer, branches=False,
    )  # fmt: skip
