"""Which row a compilation uses, and what happens when its schedule cannot be used."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec
from nautilus.passes.manager import Context
from nautilus.tune.database.lookup import neighbours, ranked, tuned_schedule
from nautilus.tune.database.rows import Key, Row, key_of, schedule_hash
from nautilus.tune.database.store import append
from tests.runtime.work import calls
from tests.tune.made import KEY, row


def never() -> str:
    raise AssertionError("the device was asked for without need")


def names(found: list[Row], device: str = "") -> list[str]:
    return [r.name for r in ranked(found, lambda: device)]


def test_the_fastest_right_one_wins() -> None:
    found = [
        row(name="fast but wrong", samples=(1e-6,), state="wrong", checked=False),
        row(name="unchecked", samples=(1e-6,), checked=False),
        row(name="estimated", samples=(1e-6,), measure="model"),
        row(name="second", samples=(2e-3,)),
        row(name="first", samples=(9.0, 1e-3, 1e-4)),
    ]
    for seed in range(5):
        mixed = random.Random(seed).sample(found, len(found))
        assert [r.name for r in ranked(mixed, never)] == ["first", "second"]


def test_finals_version_and_device_come_before_time() -> None:
    assert names([row(name="a", samples=(1e-3,)), row(name="b", samples=(2e-3,), final=True)]) == ["b"]
    old = row(name="old", samples=(1e-3,), compiler="nautilusc 0.0.1", final=True)
    assert names([old, row(name="new", samples=(2e-3,))]) == ["new"]
    assert names([old]) == ["old"]
    there = row(name="there", samples=(1e-3,), device="B")
    assert names([there, row(name="here", samples=(2e-3,), device="A")], "A") == ["here"]
    assert names([there, row(name="here", samples=(2e-3,), device="A")], "C") == ["there", "here"]


def test_equal_times_are_ordered_by_hash() -> None:
    pair = [row(name=n, schedule_hash=n) for n in "ba"]
    assert names(pair) == names(pair[::-1]) == ["a", "b"]


def test_neighbours_are_the_nearest_sizes() -> None:
    def at(m: int, **more: Any) -> Row:
        return row(Key(KEY.family, {"M": m, "N": 16}, "sm_80", "fast"), name=str(m), values={"s": 1}, **more)

    found = [at(8), at(16), at(64), at(4, samples=(9.0,)), at(4, samples=(8.0,)), at(512), at(7, checked=False)]
    near = neighbours(found, KEY)
    assert sorted(r.name for r in near[:2]) == ["16", "4"] and near[2].name == "64"
    assert [r.seconds for r in near if r.name == "4"] == [8.0]
    assert neighbours(found, replace(KEY, arch="sm_90")) == []


def test_a_compilation_uses_it(matmul: Path, own_database: Path) -> None:
    request = Request(matmul, "sm_80", until="ma-tile")
    plain = compile_file(request)
    assert plain.context.schedule is not None
    (kernel,) = plain.context.schedule.kernels
    other = replace(plain.context.schedule, kernels=(replace(kernel, mapping=replace(kernel.mapping, stages=1)),))
    key = key_of(plain.modules["spec"], "sm_80", "fast")
    append(own_database, [row(key, other)])
    tuned = compile_file(replace(request, lookup=tuned_schedule))
    assert tuned.tuned and tuned.context.schedule == other
    assert compile_file(request).context.schedule == plain.context.schedule
    for changed in ({"dims": {"M": 64}}, {"arch": "sm_90"}, {"precision": "strict"}):
        assert not compile_file(replace(request, lookup=tuned_schedule, **changed)).tuned


@pytest.mark.parametrize("broken", ["unknown axis", "too large", "no such op"])
def test_one_that_is_not_legal_is_passed_over(matmul: Path, own_database: Path, broken: str) -> None:
    request = Request(matmul, "sm_80", lookup=tuned_schedule, until="ma-tile")
    plain = compile_file(request)
    assert plain.context.schedule is not None and not plain.tuned and not plain.lookup_failure
    (kernel,) = plain.context.schedule.kernels
    if broken == "unknown axis":
        kernel = replace(kernel, axes=tuple(replace(a, name="zz") for a in kernel.axes))
    elif broken == "too large":
        kernel = replace(kernel, mapping=replace(kernel.mapping, stages=64))
    else:
        kernel = replace(kernel, ops=("nobody",))
    bad = replace(plain.context.schedule, kernels=(kernel,))
    append(own_database, [row(key_of(plain.modules["spec"], "sm_80", "fast"), bad)])
    result = compile_file(request)
    assert not result.tuned and result.lookup_failure
    assert result.context.schedule == plain.context.schedule


def test_a_schedule_of_another_version_is_passed_over(matmul: Path, own_database: Path) -> None:
    spec = load_spec(matmul)
    key = key_of(spec, "sm_80", "fast")
    good = Schedule(inline=(), factor=False)
    strange = {**asdict(good), "colour": "blue"}
    append(own_database, [row(key, good, samples=(2.0,)), replace(row(key, samples=(1.0,)), schedule=strange)])
    assert tuned_schedule(spec, Context("sm_80")) == good


def test_looking_up_reads_the_rows_of_the_key_alone(matmul: Path, own_database: Path) -> None:
    spec = load_spec(matmul)
    key = key_of(spec, "sm_80", "fast")
    many = [row(Key(f"{n:016x}", {"M": n}, "sm_80", "fast"), reason="y" * 500) for n in range(5000)]
    wanted = Schedule(inline=("here",))
    append(own_database, [*many, row(key, wanted), *many])
    found: list[Schedule | None] = []
    assert calls(lambda: found.append(tuned_schedule(spec, Context("sm_80")))) < len(many)
    assert schedule_hash(found[0] or Schedule()) == schedule_hash(wanted)
