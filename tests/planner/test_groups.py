"""Groups of definitions: their order, cycles through other groups, what stays in memory, and the limit of a kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.core.fallbacks import NO_FALLBACKS
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_text
from nautilus.planner.groups import Graph, Why, graph_of, have_the_same_terms, known_of, large_inputs, launches_alike
from nautilus.planner.kernels import MOST, default_schedule, unfused
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.lowering import lower
from tests.planner.plans import schedule_of

DIAMOND = """
dim N = 64
input X: f32[N]
output Y: f32[N]
A[i] = X[i] * 2
B[i] = exp(A[i])
C[i] = sin(A[i])
Y[i] = B[i] + C[i]
"""


def diamond() -> Graph:
    return graph_of(read_defs(lower(load_text(DIAMOND))))


def test_the_graph_has_operands_and_readers_in_order() -> None:
    graph = diamond()
    assert graph.operands == {"A": (), "B": ("A",), "C": ("A",), "Y": ("B", "C")}
    assert graph.readers == {"A": ("B", "C"), "B": ("Y",), "C": ("Y",), "Y": ()}
    assert graph.union([("Y",), ("A", "C")]) == ("A", "C", "Y")


def test_the_same_definitions_of_two_programs_have_one_plan() -> None:
    program = lower(load_text(DIAMOND))
    again = replace(program, name="again", kernels=tuple(replace(k) for k in program.kernels))
    one, same, fewer = (known_of(p) for p in (program, again, replace(program, kernels=program.kernels[:2])))
    assert one.defs["A"] is not same.defs["A"]
    plan = one.plan(("A", "B"), NO_FALLBACKS)
    assert plan is not None and plan is same.plan(("A", "B"), NO_FALLBACKS)
    assert one.unified(("A", "B")) is same.unified(("A", "B"))
    assert plan is not fewer.plan(("A", "B"), NO_FALLBACKS)  # there A has no other reader


def test_a_group_that_another_one_reads_and_is_read_by_is_cyclic() -> None:
    graph = diamond()
    assert graph.cyclic({}, ("A", "Y"))
    assert not graph.cyclic({}, ("A", "B", "C"))
    apart = {"B": ("B", "C"), "C": ("B", "C")}
    assert graph.cyclic(apart, ("A", "Y"))
    assert not graph.cyclic(apart, ("A", "B", "C", "Y"))


def test_groups_are_ordered_in_rounds() -> None:
    graph = diamond()
    assert graph.ordered({}) == (("A",), ("B",), ("C",), ("Y",))
    assert graph.ordered({"C": ("C", "Y"), "Y": ("C", "Y")}) == (("A",), ("B",), ("C", "Y"))


def test_outputs_and_operands_of_other_groups_stay_in_memory() -> None:
    graph = diamond()
    assert graph.stored(frozenset({"Y"}), ("A", "B")) == {"A", "B", "Y"}
    assert graph.stored(frozenset({"Y"}), ("A", "B", "C")) == {"B", "C", "Y"}


def test_no_kernel_has_more_definitions_than_the_limit() -> None:
    count = 3 * MOST
    outputs = "".join(f"output Y{n}: f32[N, N]\n" for n in range(count))
    body = "".join(f"Y{n}[i, j] = X[i, j] + {n}\n" for n in range(count))
    program = lower(load_text("dim N = 64\ninput X: f32[N, N]\n" + outputs + body))
    kernels = default_schedule(program).kernels
    assert len(kernels) == 3
    assert sorted(o for k in kernels for o in k.ops) == sorted(read_defs(program))
    assert max(len(k.ops) for k in kernels) == MOST


def test_blocks_of_a_product_do_not_reduce_the_same_chunks_again() -> None:
    def kernels(rows: int) -> tuple[list[tuple[str, ...]], dict[str, Why]]:
        text = f"dim M = {rows}, K = 64, N = 64, C = 16\ninput A: bf16[M, K], B: bf16[K, N], P: f32[C, K]\n"
        text += "output Y: f32[M, N]\nZ[k] = sum[c: C](P[c, k])\nT[i: M] = sum[k](f32(A[i, k]) * Z[k])\n"
        program = lower(load_text(text + "Y[i, j] = sum[k](A[i, k] * B[k, j]) / T[i]\n"))
        return [k.ops for k in default_schedule(program).kernels], {n: u.why for n, u in unfused(program).items()}

    assert kernels(128) == ([("Z", "T", "Y_sum", "Y")], {})
    assert kernels(8192) == ([("Z",), ("T", "Y_sum", "Y")], {"Z": Why.REPEATED})


def test_a_block_has_one_matrix_of_each_product() -> None:
    text = "dim H = 8, M = 256, D = 64\ninput S: f16[H, M, M], V: f16[H, M, D], W: f16[H, H]\noutput O: f16[H, M, D]\n"
    text += "T[g: H, i, j] = sum[h](W[g, h] * S[h, i, j])\nP[h, i, j] = softmax[j](T[h, i, j])\n"
    program = lower(load_text(text + "O[h, i, d] = sum[j](P[h, i, j] * V[h, j, d])\n"))
    last = default_schedule(program).kernels[-1]
    assert "T" not in last.ops and {a.name: a.tile for a in last.axes}["h"] == 1
    assert unfused(program)["T"].why is Why.BATCHED


def test_a_block_has_no_whole_side_for_what_lacks_it() -> None:
    """The norms of the keys of few queries, and a product beside another one whose columns it lacks."""
    text = "dim H = 8, M = 64, D = 32\ninput Q: f16[H, M, D], K: f16[H, M, D], V: f16[H, M, D]\n"
    text += "output O: f16[H, M, D]\nr[h, j] = sum[d](K[h, j, d] ** 2)\n"
    text += "S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d])\n"
    program = lower(load_text(text + "O[h, i, d] = sum[j](max(S[h, i, j] * r[h, j], 0) * V[h, j, d])\n"))
    last = default_schedule(program).kernels[-1]
    assert next(a for a in last.axes if a.name == "i").role == "grid" and unfused(program)["r"].why is Why.SIDE

    text = "dim B = 4, M = 128, L = 48, D = 256\ninput A: bf16[B, M, L, D], C: bf16[B, M, D], W: bf16[L, D]\n"
    text += "output Y: bf16[B, M, M, L]\n"
    text += "Y[b, i, j, l] = sum[q](A[b, i, l, q] * C[b, j, q]) + sum[p](W[l, p] * C[b, i, p])\n"
    assert ("Y_sum", "Y") in [k.ops for k in default_schedule(lower(load_text(text))).kernels]


def test_a_sum_over_batches_is_not_in_the_kernel_of_their_products() -> None:
    """Attention with the mean of its weights over heads: a block would hold the matrices of all heads."""
    text = "dim H = 8, M = 256, D = 64\ninput Q: f16[H, M, D], K: f16[H, M, D], V: f16[H, M, D]\n"
    text += "output O: f16[H, M, D], A: f16[M, M]\nP[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]))\n"
    program = lower(load_text(text + "O[h, i, d] = sum[j](P[h, i, j] * V[h, j, d])\nA[i, j] = mean[h](P[h, i, j])\n"))
    kernels = default_schedule(program).kernels
    assert not any({"O", "A"} <= set(k.ops) for k in kernels)


def test_a_result_of_which_matrices_alternate_is_no_part_of_the_kernel_of_the_product() -> None:
    text = (
        "dim N = 256, C = 64\ninput A: f16[C, N, N]\ninput B: f16[C, N, N]\noutput Z: f16[N, N, C]\n"
        "S[c, i, j] = sum[k](A[c, i, k] * B[c, j, k])\nZ[i, j, c] = f16(S[c, i, j])\n"
    )
    assert [k.ops for k in default_schedule(lower(load_text(text))).kernels] == [("S",), ("Z",)]
    small = text.replace("N = 256, C = 64", "N = 64, C = 4")
    assert [k.ops for k in default_schedule(lower(load_text(small))).kernels] == [("S", "Z")]


def test_definitions_that_read_one_tensor_stay_apart_where_one_of_them_alone_fills_the_gpu() -> None:
    """One block would compute all chunks of the maximum with the mean."""
    text = """
        dim N = 100000, D = 3
        input P: f32[N, D]
        output c: f32[D], r: f32
        c[d] = mean[n](P[n, d])
        r = max[n](sum[d](square(P[n, d] - c[d])))
    """
    schedule = compile_file(Request(Path("given.naut"), "sm_90a", text=dedent(text), until="ma-tile")).context.schedule
    assert schedule is not None
    (plan,) = (k for k in schedule.kernels if "r_part" in k.ops)
    assert not any(o.startswith("c") for o in plan.ops)


CONTRASTIVE = """
dim B = 4096, D = 512
input I: f16[B, D]
input T: f16[B, D]
output a: f32[B]
output b: f32[B]
S[i, j] = sum[d](I[i, d] * T[j, d])
a[i] = logsumexp[j](S[i, j]) - S[i, i]
b[j] = logsumexp[i](S[i, j]) - S[j, j]
"""


def test_the_diagonal_of_a_matrix_is_no_reason_to_share_a_kernel() -> None:
    """Statistics of rows and those of columns both read it, in blocks of other shapes."""
    made = schedule_of(CONTRASTIVE)
    groups = [k.ops for k in made.kernels]
    assert not any("a_sum_part" in ops and "b_sum_part" in ops for ops in groups)
    assert {"a_sum_part", "b_sum_part"} <= {o for ops in groups for o in ops}


FRAMES = """
dim B = 64, F = 128, W = 400
input x: f32[B, F * W]
output power: f32[B, F], peak: f32[B, F]
power[b, f] = mean[n: W](x[b, f * W + n] ** 2)
peak[b, f] = max[n: W](abs(x[b, f * W + n]))
"""


def test_frames_of_a_signal_are_read_once() -> None:
    """The position of an element has the frame and the place in it."""
    assert len(schedule_of(FRAMES).kernels) == 1


def test_statistics_of_segments_read_their_rows_once() -> None:
    """Each row has one segment, so that a reduction over segments reads all elements of the rows once."""
    text = """
    dim S = 4096, N = 65536, D = 32
    input X: f16[N, D], ptr: i32[S + 1]
    output M: f32[S, D], H: f32[S, D]
    M[s: S, d] = sum[n: ptr[s] .. ptr[s + 1]](X[n, d])
    H[s: S, d] = max[n: ptr[s] .. ptr[s + 1]](X[n, d])
    """
    assert len(schedule_of(dedent(text)).kernels) == 1


def test_windows_that_overlap_are_no_tensor_of_one_element_for_each_point() -> None:
    reads = dict[int, frozenset[str]]()
    for step in (1, 64):
        text = f"""
            dim N = 4096, W = 64
            input x: f32[N * {step} + W]
            output y: f32[N]
            y[i] = max[k: W](x[i * {step} + k])
        """
        defs = read_defs(lower(load_text(dedent(text))))
        reads[step] = large_inputs(defs, tuple(defs))
    assert reads == {1: frozenset(), 64: frozenset({"x"})}


SMALL_PAIR = """
dim N = 128, M = 64
input X: i32[N, M]
output A: i32[N]
output B: i32[N]
A[i] = min[j](X[i, j])
B[i] = max[j](X[i, j])
"""


def test_small_reductions_of_one_tensor_are_alike() -> None:
    defs = read_defs(lower(load_text(SMALL_PAIR)))
    assert launches_alike(defs, ("A",), ("B",))
    large = read_defs(lower(load_text(SMALL_PAIR.replace("N = 128", "N = 1048576"))))
    assert not launches_alike(large, ("A",), ("B",))
    other = read_defs(lower(load_text(SMALL_PAIR.replace("max[j](X[i, j])", "max[j: M](i * j)"))))
    assert not launches_alike(other, ("A",), ("B",))


ELEMENTS = """
dim N = 4096
input X: i32[N]
input Y: i16[N]
output A: i32[N]
output B: i16[N]
A[i] = X[i] // 3
B[j] = Y[j] % 5
"""


def test_few_elements_of_one_shape_share_a_launch() -> None:
    defs = read_defs(lower(load_text(ELEMENTS)))
    assert launches_alike(defs, ("A",), ("B",))
    large = read_defs(lower(load_text(ELEMENTS.replace("4096", "4194304"))))
    assert not launches_alike(large, ("A",), ("B",))
    kernels = schedule_of(ELEMENTS).kernels
    assert [k.ops for k in kernels] == [("A", "B")]
    assert [a.name for a in kernels[0].axes] == ["j"]


RANKS = """
dim B = 16, V = 1024
input X: f32[B, V]
output above: f32[B, V]
output first: bool[B, V]
above[b, v] = sum[u](X[b, u] if X[b, u] > X[b, v] else 0)
first[b, v] = any[u](X[b, u] == X[b, v] and u < v)
"""


def test_reductions_of_the_same_elements_share_a_kernel() -> None:
    defs = read_defs(lower(load_text(RANKS)))
    assert have_the_same_terms(defs, ("above",), ("first",))
    other = read_defs(lower(load_text(RANKS.replace("X[b, u] == X[b, v]", "X[b, u] == X[0, v]"))))
    assert not have_the_same_terms(other, ("above",), ("first",))
    assert [k.ops for k in schedule_of(RANKS).kernels] == [("above", "first")]


LAYOUT = """
dim H = 16, T = 8192, D = 128
const NB = T // 64
input q: bf16[H, T, D]
input k: bf16[H, T, D]
input v: bf16[H, T, D]
input layout: i32[H, NB, NB]
output o: bf16[H, T, D]
p[h, i, j] = softmax[j | layout[h, i // 64, j // 64] != 0 and j <= i](sum[d](q[h, i, d] * k[h, j, d]))
o[h, i, d] = sum[j](p[h, i, j] * v[h, j, d])
"""


def test_whether_a_row_has_an_element_is_found_in_the_loop_of_its_product() -> None:
    schedule = schedule_of(LAYOUT)
    plans = {k.name: k for k in schedule.kernels}
    assert any(name.endswith("_any") for name in plans["o"].ops)


COLUMNS = """
dim M = 8192, N = 4096, K = 4096
input X: f16[M, K]
input W: f16[N, K]
output s: f32[K], Y: f16[N, K]
s[k] = max[m](abs(f32(X[m, k]))) / max[n](abs(f32(W[n, k])))
Y[n, k] = W[n, k] * s[k]
"""


def test_few_blocks_do_not_reduce_one_long_axis_after_another() -> None:
    """Each of both reductions is a kernel of its own, whose loop is in chunks."""
    found = schedule_of(COLUMNS)
    assert {c.op for c in found.splits or ()} == {"s_max", "s_max_2"}


def test_few_blocks_do_not_read_their_columns_again_to_store_what_is_made_of_them() -> None:
    one = COLUMNS.replace("max[m](abs(f32(X[m, k])))", "f32(X[0, k])")
    for text in (COLUMNS, one):
        assert any(k.ops == ("Y",) for k in schedule_of(text).kernels)


@pytest.mark.parametrize("columns", [64, 128])
def test_two_attentions_of_other_keys_are_a_kernel_each(columns: int) -> None:
    """The loop over one set of keys would run inside that over the other one, on the MMAs of single warps."""
    schedule = schedule_of(f"""
        dim H = 8, M = 2048, N = 4096, D = {columns}
        input Q: f16[H, M, D]
        input K: f16[H, M, D]
        input V: f16[H, M, D]
        input L: f16[N, D]
        input W: f16[N, D]
        input g: f32[H]
        output O: f16[H, M, D]
        S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d])
        T[h, i, m] = sum[d](Q[h, i, d] * L[m, d])
        A[h, i, d] = sum[m](softmax[m](T[h, i, m]) * W[m, d])
        O[h, i, d] = g[h] * A[h, i, d] + sum[j](softmax[j | j <= i](S[h, i, j]) * V[h, j, d])
    """)
    kernels = [k for k in schedule.kernels if any(o.startswith(("S", "T")) for o in k.ops)]  # not what joins chunks
    assert len(kernels) == 2
    assert all(k.mapping.engine == "warpgroup" for k in kernels)
