"""``dataclass`` behaves as that of the standard library, whose classes stand beside it; stacks and heaps."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from nautilus.core.records import dataclass, is_frozen
from nautilus.core.records.stack import with_large_stack

KINDS: list[dict[str, bool]] = [
    {}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True}, {"slots": True, "eq": False},
    {"frozen": True, "slots": True, "kw_only": True},
]  # fmt: skip
kinds = pytest.mark.parametrize("options", KINDS, ids=lambda o: "-".join(o) or "plain")


def pair(decorate: Any, options: dict[str, bool]) -> type[Any]:
    """A class with every kind of field."""

    class Pair:
        a: int
        b: list[int] = field(default_factory=list)
        c: str = "c"
        d: int = field(default=4, compare=False, repr=False)
        e: int = field(default=5, init=False)

    made: type[Any] = decorate(**options)(Pair)
    return made


def outcome(call: Callable[..., Any], *args: Any, **named: Any) -> object:
    """The result of a call, or the type of its error."""
    try:
        return call(*args, **named)
    except (TypeError, FrozenInstanceError, AttributeError) as error:
        return type(error)


def behaviour(cls: type[Any]) -> list[object]:
    x, y = cls(a=1), cls(a=1, d=7)
    return [
        repr(x),
        x == y,
        x == cls(a=2),
        x != 1,
        outcome(hash, x) == outcome(hash, y),
        dataclasses.asdict(x),
        repr(dataclasses.replace(x, c="z")),
        x.b is not y.b,
        cls.__match_args__,
        [f.name for f in dataclasses.fields(x)],
        repr(copy.deepcopy(x)) == repr(x),
        hasattr(x, "__dict__"),
        outcome(cls),
        outcome(cls, a=1, nothing=2),
        repr(outcome(cls, 1, [2], "3")),
        outcome(setattr, x, "a", 3),
        outcome(delattr, x, "a"),
    ]


@kinds
def test_objects_are_those_of_the_standard_library(options: dict[str, bool]) -> None:
    assert behaviour(pair(dataclass, options)) == behaviour(pair(dataclasses.dataclass, options))


@dataclass(frozen=True, slots=True)
class Base:
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("negative")


@dataclass(frozen=True, slots=True)
class Derived(Base):
    b: tuple[Base, ...] = ()

    def __hash__(self) -> int:
        return 7


def test_derived_classes_pickles_and_checks() -> None:
    x = Derived(1, (Base(2),))
    assert pickle.loads(pickle.dumps(x)) == x and repr(x) == "Derived(a=1, b=(Base(a=2),))"
    assert hash(x) == 7 and x != Base(1) and Base(1) == Base(1)
    assert is_frozen(Derived) and not is_frozen(int)
    with pytest.raises(ValueError, match="negative"):
        Derived(-1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        x.a = 3  # type: ignore[misc]


def test_parameters_have_the_names_of_the_fields() -> None:
    class Late:
        a: int
        b: int = 2

    made = dataclass(frozen=True)(Late)
    assert str(inspect.signature(made)) == "(a, b=2)"
    assert str(inspect.signature(Base)) == "(a)"


def test_a_field_without_default_after_one_with_default_is_refused() -> None:
    class Wrong:
        a: int = 1
        b: int

    with pytest.raises(TypeError, match="b has no default"):
        dataclass(Wrong)


def test_calls_at_any_depth_map_no_memory() -> None:
    def leaf(x: int) -> int:
        return x

    def calls_below(depth: int) -> int:
        return calls_below(depth - 1) if depth else sum(leaf(n) for n in range(200))

    @with_large_stack
    def all_depths() -> int:
        return sum(calls_below(depth) for depth in range(100, 400))  # 16 KiB hold some 150 frames

    all_depths()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert all_depths() == 300 * 19_900
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 200


_ARRAYS = """
import resource
import numpy as np
from nautilus.core.records.heap import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def evaluate(times):
    for _ in range(times):
        x = np.ones(1 << 18)
        y = x + 1.0
        z = y.astype(np.float32)
        del x, y, z

keep_freed_memory()
evaluate(3)
before = faults()
evaluate(50)
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of glibc")
def test_arrays_after_freed_ones_need_no_new_pages() -> None:
    """Each of them has 512 pages or half as many; by default about 500 of each evaluation are new."""
    done = subprocess.run([sys.executable, "-c", _ARRAYS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2000
