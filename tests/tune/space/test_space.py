"""The space of schedules: its points, its defaults, which are those of the rules, and the refusal of illegal points."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.fallbacks import LIGHTER, NO_FALLBACKS, WITHOUT, Fallbacks
from nautilus.core.schedule import Schedule, check_schedule
from nautilus.driver import Request, compile_file
from nautilus.scalar.ir import Program
from nautilus.tune.search.trial_lowering import TrialLowering, trials_of
from nautilus.tune.space import fusion
from nautilus.tune.space.schedules import Refused, choices, defaults, neighbours, point, schedule_of, space_of
from tests.core.schedule.engines import warp_of, warpgroup_of
from tests.cost.measured import SPECS, candidate, product, program, space

ARCH = "sm_90a"
NAMES = [
    "attention/causal_prefill", "attention/global_prefill_d64", "attention/gqa_decode", "attention/causal_decode",
    "matmul/f16", "matmul/swiglu", "matmul/f32", "rowwise/softmax", "rowwise/layer_norm", "rowwise/argmax",
]  # fmt: skip


def of_rules(p: Program, arch: str) -> Schedule:
    """The schedule of the rules, with what they inlined before."""
    origin = space(p, arch).trials.origin
    assert origin is not None
    return replace(TrialLowering(p, arch).base_schedule(), inline=origin.inline)


def values(name: str, choice: str) -> tuple[object, ...]:
    return next(c.values for c in choices(space(program(name), ARCH)) if c.name == choice)


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_the_rules(name: str) -> None:
    p = program(name)
    found = candidate(p, ARCH, defaults(space(p, ARCH)))
    assert found == of_rules(p, ARCH)
    assert candidate(p, ARCH, {}) == found


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_defaults_are_the_rules_elsewhere(arch: str) -> None:
    for name in ("attention/causal_prefill", "matmul/f16"):
        p = program(name, arch=arch)
        assert candidate(p, arch, defaults(space(p, arch))) == of_rules(p, arch)
        assert not any(c.name.endswith("engine") for c in choices(space(p, arch)))


@pytest.mark.parametrize("name", NAMES)
def test_every_default_is_among_its_values(name: str) -> None:
    p = program(name)
    given = defaults(space(p, ARCH))
    for c in choices(space(p, ARCH)):
        assert given[c.name] in c.values
        assert len(set(c.values)) == len(c.values) > 1
    assert given.keys() == {c.name for c in choices(space(p, ARCH))}


@pytest.mark.parametrize("name", NAMES)
def test_random_points_are_schedules_or_say_why_not(name: str) -> None:
    p, order = program(name), random.Random(7)
    legal = 0
    for _ in range(5):
        found = candidate(p, ARCH, {c.name: order.choice(c.values) for c in choices(space(p, ARCH))})
        if isinstance(found, Refused):
            assert found.reason and "internal error" not in found.reason and "IR breaks" not in found.reason
        else:
            check_schedule(found)
            assert Schedule.from_json(found.to_json()) == found
            legal += 1
    assert legal > 0


def test_structure_makes_the_choices() -> None:
    assert values("matmul/f16", "C.warpgroup.block_tile")[:2] == ("128x64/2", "128x96/2")
    assert "128x192*2" in values("matmul/f16", "C.warpgroup.block_tile")
    assert values("attention/causal_prefill", "O.warpgroup.row_tile")[2:5] == ("128/2", "256/2", "192/3")
    assert values("attention/causal_prefill", "O.warpgroup.persistent") == ("none", "static", "snake", "dynamic")
    assert values("attention/global_prefill", "O.warpgroup.persistent") == ("none", "static", "dynamic")
    assert values("rowwise/softmax", "Y.loop_structure") == ("row", "rolling", "passes")
    splits = values("attention/causal_decode", "splits")
    assert splits[:3] == (1, 2, 3) and splits[-1] == "interleaved"
    assert values("attention/gqa_decode", "interleave") == ("2x16", "2x32", "2x64", "4x16", "4x32", "8x16")
    assert values("attention/gqa_decode", "groups") == (1, 2, 4, 8, 16)
    names = {c.name for c in choices(space(program("attention/global_prefill"), ARCH))}
    assert not any(
        n.endswith((".l2_supertiles", ".raster_order", ".iteration_order")) for n in names
    )  # all tiles are alike


def test_one_choice_reaches_its_field() -> None:
    p = program("attention/causal_prefill")
    found = candidate(
        p, ARCH, {"O.warpgroup.ordered_mma": True, "O.warpgroup.loop_tile": 96, "O.warpgroup.rescale_policy": "skip"}
    )
    assert isinstance(found, Schedule)
    (k,) = found.kernels
    assert warpgroup_of(k).ordered_mma and k.axis("j").tile == 96 and k.rescale_policy == "skip"
    assert warpgroup_of(k).warpgroups == 2 and warpgroup_of(k).persistent == "dynamic"


def test_a_tile_takes_what_depends_on_it_along() -> None:
    p = product(4096, 4096, 4096)
    found = candidate(p, ARCH, {"C.warpgroup.block_tile": "128x192*2"})
    assert isinstance(found, Schedule)
    m = warpgroup_of(found.kernels[0])
    assert (m.tile_scheduling, m.warpgroups, m.persistent, m.raster_group) == ("pingpong", 2, "static", 8)
    assert m.stages == 4 and m.store_columns == 64
    wide = candidate(product(8192, 8192, 8192), ARCH, {})
    again = candidate(product(8192, 8192, 8192), ARCH, {"C.warpgroup.block_tile": "128x320/2"})
    assert wide == again  # the tile of the rules, chosen by another parameter


def test_warpgroups_may_share_rows_or_take_blocks_of_their_own() -> None:
    p = program("attention/causal_prefill")
    own = candidate(p, ARCH, {"O.warpgroup.row_tile": "64*2", "O.warpgroup.persistent": "none"})
    assert isinstance(own, Refused) and "persistent grid" in own.reason
    own = candidate(p, ARCH, {"O.warpgroup.row_tile": "64*2"})
    assert isinstance(own, Schedule)
    (k,) = own.kernels
    assert (warpgroup_of(k).tile_scheduling, warpgroup_of(k).warpgroups, k.axis("i").tile) == ("pingpong", 2, 64)
    tall = schedule_of(space(p, ARCH), {"O.warpgroup.row_tile": "256/2"})
    assert isinstance(tall, Schedule)
    assert not warpgroup_of(tall.kernels[0]).register_operands  # 128 rows a warpgroup are too many registers


def test_registers_are_shared_out_and_rings_filled_again() -> None:
    p = product(4096, 4096, 4096)
    (k,) = schedule_of(space(p, ARCH), {"C.warpgroup.producer_registers": 56}).kernels  # type: ignore[union-attr]
    assert (warpgroup_of(k).producer_registers, warpgroup_of(k).consumer_registers) == (56, 224)
    (k,) = schedule_of(space(p, ARCH), {"C.warpgroup.persistent": "dynamic"}).kernels  # type: ignore[union-attr]
    assert (warpgroup_of(k).producer_registers, warpgroup_of(k).consumer_registers) == (
        40,
        232,
    )  # a producer that fetches tiles
    block = {"C.warpgroup.block_tile": "128x96*2"}
    (k,) = schedule_of(space(p, ARCH), block).kernels  # type: ignore[union-attr]
    (staged,) = schedule_of(space(p, ARCH), {**block, "C.warpgroup.epilogue": "tma-staged/64"}).kernels  # type: ignore[union-attr]
    assert staged.mapping.stages > k.mapping.stages  # results alias a stage


def test_supertiles_divide_the_outer_points() -> None:
    p = program("attention/causal_prefill")
    assert p.buffers[0].shape[:2] == (1, 32)
    assert all(32 % n == 0 for n in values("attention/causal_prefill", "O.warpgroup.l2_supertiles") if n)  # type: ignore[operator]


def test_kernels_can_be_cut_and_split_loops_combined() -> None:
    p = program("attention/causal_decode")
    way = "S_sum P_max P_sum | O_acc O"
    cut = candidate(p, ARCH, {"kernels": way, "splits": 1})
    assert isinstance(cut, Schedule) and [k.ops for k in cut.kernels] == [("S_sum", "P_max", "P_sum"), ("O_acc", "O")]
    found = candidate(p, ARCH, {"splits": 4})
    assert isinstance(found, Schedule) and found.splits is not None
    assert {(c.op, c.splits) for c in found.splits} == {("P_max", 4), ("P_sum", 4), ("O_acc", 4)}
    assert len(found.kernels) == 2 and TrialLowering(p, ARCH).lower(found).ok
    deep = candidate(p, ARCH, {"splits": 4, "split.O_acc_part.stages": 3})
    assert isinstance(deep, Schedule) and deep.kernels[0].mapping.stages == 3


@pytest.mark.parametrize("name", ["attention/causal_decode", "attention/gqa_decode"])
def test_interleaved_splits_are_candidates(name: str) -> None:
    p = program(name)
    found = candidate(p, ARCH, {"interleave": "2x64", "groups": 2, "interleaved.O_acc_part.stages": 2})
    assert isinstance(found, Schedule) and found.splits is not None
    parts, again = found.splits[:3], found.splits[3:]
    assert {(c.op, c.splits, c.tile, c.interleave) for c in parts} == {
        (o, 4, 64, 2) for o in ("P_max", "P_sum", "O_acc")
    }
    assert {(c.splits, c.tile, c.interleave) for c in again} == {(2, 2, 1)}
    partial, joined, last = found.kernels
    assert warp_of(partial).combine_in_block and partial.mapping.stages == 2 and partial.axis("j").tile == 64
    assert warp_of(joined).warps[0] * warp_of(joined).warps[1] == 2 and last.name == "O"
    done = TrialLowering(p, ARCH).lower(found)
    assert done.module is not None and [k.cluster for k in done.module.kernels] == [2]
    values = {"interleave": "2x64", "groups": 2, "interleaved.O_acc_part_2.cluster": 1}
    second = candidate(p, ARCH, values)
    assert isinstance(second, Schedule) and len(second.kernels) == 3
    done = TrialLowering(p, ARCH).lower(second)
    assert done.module is not None and [k.cluster for k in done.module.kernels] == [1, 1]
    apart = candidate(p, ARCH, {"interleaved.O_acc_part.combine_in_block": False})
    assert isinstance(apart, Schedule) and len(apart.kernels) == 2


def test_whether_groups_are_a_cluster_is_a_choice() -> None:
    p = program("attention/gqa_decode", (("N", 16384),))
    name = "interleaved.O_acc_part_2.cluster"
    assert {c.name: c.values for c in choices(space(p, ARCH))}[name] == (1, 2)
    assert defaults(space(p, ARCH))[name] == 2 and (name, 1) in neighbours(space(p, ARCH), defaults(space(p, ARCH)))
    assert name not in defaults(space(program("attention/gqa_decode"), ARCH))  # one group


def test_groups_of_split_k_warps_are_all_alike() -> None:
    p = program("attention/gqa_decode", (("N", 4096 + 2048),))
    assert isinstance(candidate(p, ARCH, {"groups": 3}), Schedule)
    found = candidate(p, ARCH, {"groups": 16, "interleave": "2x64"})
    assert isinstance(found, Schedule) and found.splits is not None and found.splits[0].splits == 32
    assert candidate(p, ARCH, {"groups": 16, "interleave": "4x64"}) != found
    found = candidate(p, ARCH, {"groups": 4, "interleave": "8x16", "packs": "none"})
    assert isinstance(found, Schedule) and found.packs == ()
    odd = program("attention/gqa_decode", (("N", 640),))
    found = candidate(odd, ARCH, {"interleave": "4x16", "groups": 4})
    assert isinstance(found, Refused)
    assert "10 rounds of 4 tiles of 16 elements cannot be divided into 4 groups" in found.reason


def test_most_points_of_decoding_are_legal() -> None:
    p, order = program("attention/gqa_decode"), random.Random(5)
    points = [{c.name: order.choice(c.values) for c in choices(space(p, ARCH))} for _ in range(12)]
    interleaved = [{**v, "splits": "interleaved"} for v in points]
    for found in (points, interleaved):
        assert sum(isinstance(candidate(p, ARCH, v), Schedule) for v in found) > 6


def test_groups_step_back_as_the_rules_do() -> None:
    """Lighter products before none: a regrouped kernel that fails is planned as the driver would plan it."""
    p = program("attention/causal_prefill")
    (whole,) = TrialLowering(p, ARCH).base_schedule().kernels
    assert fusion.plan_group(p, whole.ops, ARCH, NO_FALLBACKS).mapping == whole.mapping
    lighter, without = (fusion.plan_group(p, whole.ops, ARCH, Fallbacks.of({"O": n})) for n in (LIGHTER, WITHOUT))
    assert lighter.mapping.engine == "warpgroup" and lighter.mapping != whole.mapping
    assert without.mapping.engine == "warp"


def test_a_kernel_that_has_no_plan_takes_its_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    trials, plan = TrialLowering(program("attention/causal_prefill"), ARCH), TrialLowering.plan

    def planned(t: TrialLowering, schedule: Schedule | None = None, fallbacks: Fallbacks = NO_FALLBACKS) -> Schedule:
        if not fallbacks.taken:
            raise ScheduleError("no plan fits", kernel="O")
        return plan(t, schedule, fallbacks)

    monkeypatch.setattr(TrialLowering, "plan", planned)
    assert trials.base_schedule() == plan(trials, fallbacks=NO_FALLBACKS.after("O"))


def test_an_elementwise_definition_can_be_kept_in_memory() -> None:
    """The function between two products, computed once and not in every block of the second."""
    p = program("matmul/bias_gelu")
    assert values("matmul/bias_gelu", "inline") == ("rule", "materialise H")
    found = candidate(p, ARCH, {"inline": "materialise H"})
    assert isinstance(found, Schedule) and found.inline == ()
    assert [k.ops for k in found.kernels] == [("H_sum",), ("H",), ("C",)]
    assert point(space(p, ARCH), {})[0].program is p  # type: ignore[index]
    other = point(space(p, ARCH), {"inline": "materialise H"})
    assert not isinstance(other, Refused) and other[0].lower(other[1]).ok and other[0].program is not p
    request = Request(SPECS / "matmul/bias_gelu.naut", schedule=found, until="ma-tile")
    assert len(compile_file(request).modules["ma-tile"].kernels) == 3  # the schedule alone determines the module


def test_choices_that_are_ruled_out_have_no_effect() -> None:
    p = program("attention/causal_prefill")
    base = schedule_of(space(p, ARCH), {})
    assert schedule_of(space(p, ARCH), {"O.warp.stages": 4}) == base
    both = {"O.engine": "warp", "O.warpgroup.row_tile": "64/1"}
    assert schedule_of(space(p, ARCH), both) == schedule_of(space(p, ARCH), {"O.engine": "warp"})
    assert all(not n.startswith("O.warp.") for n, _ in neighbours(space(p, ARCH), defaults(space(p, ARCH))))


REFUSED = [
    (
        "attention/causal_decode",
        {"splits": 1, "O.combine_in_block": True},
        "its results are not read by one other kernel alone",
    ),
    ("attention/causal_prefill", {"O.warpgroup.row_tile": "192/3"}, "fragments need"),
    ("attention/causal_prefill", {"O.warpgroup.cluster": 2}, "static tile scheduling, not dynamic"),
    ("attention/causal_decode", {"splits": 1, "O.loop_tile": 256}, "bytes of shared memory"),
    ("attention/causal_decode", {"interleave": "4x32", "interleaved.O_acc_part.stages": 4}, "bytes of shared memory"),
    ("attention/causal_decode", {"interleave": "8x32"}, "interleave is '8x32', not one of"),
    ("attention/causal_decode", {"groups": 3}, "groups is 3, not one of"),
    (
        "attention/global_prefill_d64",
        {"O.warpgroup.epilogue": "tma-staged/64"},
        "fit no stage of an operand that a loop loads",
    ),
    ("rowwise/layer_norm", {"Y.loop_structure": "rolling"}, "no repair term for Y_sum_2"),
    ("matmul/swiglu", {"kernels": "Gate Up | C"}, "does not fit in a tile"),
    ("matmul/f16", {"C.warpgroup.block_tile": "192x320/3"}, "fragments need"),
    (
        "matmul/f16",
        {"C.warpgroup.block_tile": "192x256/3"},
        "wgmma needs 154 registers a thread; the launch has 128",
    ),
    (
        "matmul/f16",
        {"C.warpgroup.block_tile": "128x192*2", "C.warpgroup.persistent": "none"},
        "needs a persistent grid",
    ),
    ("matmul/f16", {"C.engine": "third"}, "no plan with the engine third"),
    ("matmul/f16", {"C.warpgroup.stages": 7}, "stages is 7 here, not one of"),
    ("matmul/f16", {"kernels": "C"}, "not one of"),
    ("attention/causal_decode", {"splits": 5}, "splits is 5, not one of"),
]


@pytest.mark.parametrize(("name", "chosen", "reason"), REFUSED)
def test_what_is_illegal_is_refused_with_the_reason(name: str, chosen: dict[str, object], reason: str) -> None:
    found = candidate(program(name), ARCH, chosen)
    assert isinstance(found, Refused)
    assert reason in found.reason


def test_one_or_several_loops_over_a_row() -> None:
    p = program("rowwise/softmax")
    rolling, passes = (candidate(p, ARCH, {"Y.loop_structure": w}) for w in ("rolling", "passes"))
    assert isinstance(rolling, Schedule) and isinstance(passes, Schedule)
    assert rolling.kernels[0].phases == (("Y_max", "Y_sum"), ("Y",))
    assert passes.kernels[0].phases == (("Y_max",), ("Y_sum",), ("Y",))
    assert {a.name: a.role for a in rolling.kernels[0].axes} == {"i": "grid", "j": "loop"}


@pytest.mark.parametrize(
    ("name", "option"), [("models/global_f8", "narrow_to_bytes"), ("gallery/scatter/segment_sum", "scatters")]
)
def test_points_have_the_choices_that_made_their_program(name: str, option: str) -> None:
    request = Request(SPECS / f"{name}.naut", "sm_90a")
    trials, base = trials_of(request)
    own = space_of(trials)
    schedule = schedule_of(own, defaults(own))
    assert isinstance(schedule, Schedule) and getattr(schedule, option) and schedule.inline == base.inline
    again = compile_file(replace(request, schedule=schedule, until="scalar"))
    assert again.context.schedule is not None and again.context.schedule.kernels == schedule.kernels
