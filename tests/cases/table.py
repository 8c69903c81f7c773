"""The tests of which ``make test`` runs some cases; ``make test-full`` runs all of them.

What the other cases test is also tested by those that are left, or by tests of a lower level.  Shipped specs are in
every run: on all targets, at all levels, and on the simulated GPU.
"""

from __future__ import annotations

from tests.cases.choice import Choice, Covering, Every

#: parameters that are independent of each other
VALUES, PAIRS = Covering(1), Covering(2)
HALF, THIRD = Every(2), Every(3)
#: a test without parameters that takes long
NOT = Every(1, never=("",))

TABLE: dict[str, Choice] = {
    # specs through all levels
    "endtoend/test_warpgroup.py::test_every_level_of_what_a_cubin_holds": THIRD,
    "endtoend/test_warpgroup.py::test_one_option_of_back_to_back_gemms": HALF,
    "endtoend/test_warpgroup.py::test_one_option_of_a_gemm": HALF,
    "endtoend/test_warpgroup.py::test_random_options_together": HALF,
    "endtoend/test_warpgroup.py::test_adverse_inputs": VALUES,
    "endtoend/test_warpgroup.py::test_stored_operands": HALF,
    "endtoend/test_functions.py::test_reductions_of_functions": HALF,
    "endtoend/test_functions.py::test_every_level_agrees": VALUES,
    "endtoend/test_decode.py::test_default_plans": HALF,
    "endtoend/test_decode.py::test_groups_and_split_k_warps": HALF,
    "endtoend/test_decode.py::test_two_groups_are_a_cluster": HALF,
    "endtoend/test_decode.py::test_clusters_with_more_after_them": Every(1, never=("normal",)),
    "endtoend/test_decode.py::test_groups_of_two_with_a_second_kernel": HALF,
    "endtoend/test_decode.py::test_random_specs_and_splits": HALF,
    "endtoend/test_cuts.py::test_decoding_in_chunks": VALUES,
    "endtoend/test_cuts.py::test_equal_bits_for_every_batch_size": HALF,
    "endtoend/test_cuts.py::test_chunks_that_hold_nothing": VALUES,
    "endtoend/ladder/test_rungs.py::test_every_rung_is_right": HALF,
    "endtoend/ladder/test_full_sizes.py::test_a_spec_of_full_size_compiles": HALF,
    "endtoend/sizes/test_strided.py::test_every_level_agrees_and_reads_no_gap": VALUES,
    "endtoend/conditions/test_garbage.py::test_garbage_behind_a_condition_over_keys_reaches_no_result": VALUES,
    "endtoend/test_random.py::test_a_random_spec": HALF,
    # printed text on the simulated GPU
    "simulation/test_planted.py::test_every_fault_is_found": HALF,
    "simulation/test_schedules.py::test_runs": HALF,
    "simulation/test_schedules.py::test_runs_at_sizes": Every(1, never=("192, 40 of a step unused",)),
    "simulation/test_schedules.py::test_runs_with_computed_tiles": Every(1, never=("rows by number",)),
    "simulation/test_types.py::test_products": HALF,
    "simulation/test_types.py::test_scaled_groups": HALF,
    "simulation/test_types.py::test_rows_that_begin_anywhere": HALF,
    "simulation/test_types.py::test_vectors_between_aligned_ones": HALF,
    "simulation/accesses/test_scatters.py::test_scatters": VALUES,
    "simulation/accesses/test_scatters.py::test_scatters_in_blocks": VALUES,
    "simulation/accesses/test_shifted_loads.py::test_neighbours": VALUES,
    "simulation/test_scans.py::test_scans": HALF,
    "simulation/test_recurrences.py::test_recurrences": HALF,
    # passes of the levels
    "scalar/passes/recurrences/test_matrix_states_at_all_levels.py::test_all_levels_are_within_the_stated_bound": Every(
        3, never=("a gate of each row, in f32",), also=("a gate of each row, downwards, and keys that are computed",)
    ),
    "scalar/passes/recurrences/test_chunk_matrix_states.py::test_chunks_are_the_recurrence": VALUES,
    "scalar/passes/recurrences/test_chunk_matrix_states.py::"
    "test_what_the_recurrence_defines_is_the_same_beside_inf_and_nan": VALUES,
    "scalar/passes/recurrences/test_chunk_matrix_states.py::"
    "test_products_of_decays_are_as_accurate_as_those_of_steps": HALF,
    "scalar/passes/recurrences/test_recur_scans.py::test_inf_and_nan_are_where_the_sums_have_them": VALUES,
    "scalar/passes/recurrences/test_chunk_recurrences.py::test_inf_and_nan_are_where_the_recurrence_has_them": VALUES,
    "scalar/passes/positions/test_find_ranges.py::test_results_are_those_of_all_blocks": VALUES,
    "scalar/passes/positions/test_find_ranges.py::test_results_at_sizes_known_at_launch": Every(2),
    "scalar/passes/test_split_k_update.py::test_split_programs_agree": HALF,
    "scalar/passes/test_split_k_update.py::test_hard_programs_agree_under_other_splits": VALUES,
    "scalar/passes/test_pack.py::test_query_heads_in_groups_agree": VALUES,
    "scalar/analysis/test_iteration_order.py::test_attention_at_odd_sizes": VALUES,
    "scalar/analysis/test_iteration_order.py::test_every_program_computes_the_same": HALF,
    "scalar/analysis/blocks/test_tensor_ends.py::test_any_contents": VALUES,
    "scalar/analysis/ranges/test_window_places.py::test_results": VALUES,
    "scalar/test_fusion.py::test_every_stage_agrees": HALF,
    "scalar/test_fusion_fuzz.py::test_random_programs_agree_with_loops": HALF,
    "scalar/test_fusion_fuzz.py::test_random_programs_survive_fusion": HALF,
    "vr_tile/passes/exponents/test_guard_exponents.py::test_a_number_beside_the_elements": VALUES,
    "vr_tile/passes/exponents/test_guard_exponents.py::test_large_negative_fills": VALUES,
    "vr_tile/passes/exponents/test_guard_exponents.py::test_numbers_at_the_ends_of_the_range": VALUES,
    "vr_tile/passes/exponents/test_guard_exponents.py::test_the_larger_one_of_maxima_of_several_scales": VALUES,
    "vr_tile/passes/exponents/test_guard_exponents.py::test_huge_scores": VALUES,
    "ma_tile/passes/test_pipeline.py::test_results_stay_the_same": VALUES,
    "ma_tile/passes/copies/test_multicast_loads.py::test_results_stay_the_same": VALUES,
    "ma_tile/passes/mma/test_pipeline_mma.py::test_the_same_values": VALUES,
    "ma_tile/passes/copies/test_multicast_loads.py::test_specs_give_the_same_bits": HALF,
    "ma_tile/rewriting/test_clamped_scalars.py::test_a_scalar_on_each_side": VALUES,
    "mutants/test_mutants.py::test_every_mutant_is_noticed": HALF,
    "passes/selection/test_variants.py::test_rows_that_are_read_again_stay_in_registers_under_a_bound": HALF,
    "passes/trials/test_divided.py::test_steps_make_of_each_kernel_alone_what_they_make_of_all": VALUES,
    "planner/test_spellings.py::test_every_level_agrees": VALUES,
    "planner/test_spellings.py::test_spellings_have_one_plan": HALF,
    "planner/rowwise/test_extrema.py::test_all_levels_agree_on_positions": VALUES,
    # the text through NVRTC and nvcc
    "cuda/test_nvcc.py::test_shipped": HALF,
    "cuda/test_nvcc.py::test_tensor_maps_are_encoded_by_the_host": HALF,
    "cuda/test_clusters.py::test_default_plans_compile_without_spills": HALF,
    "cuda/test_clusters.py::test_specs_in_clusters": HALF,
    "cuda/test_consumers.py::test_default_plans_compile_without_spills": HALF,
    "cuda/test_functions.py::test_every_function_compiles": PAIRS,
    "cuda/test_names.py::test_names_with_a_meaning_compile": VALUES,
    "cuda/test_epilogue.py::test_compiles_without_a_spill": HALF,
    "cost/test_registers.py::test_the_rule_agrees_with_ptxas": HALF,
    "planner/test_recorded_plans.py::test_the_plans_are_as_recorded": HALF,
    # bounds, certificates, faults
    "check/bound/test_figures.py::test_the_figure_is_as_recorded": Every(2, never=("softmax over two axes",)),
    "check/bound/test_measured.py::test_every_kind_of_inputs_is_within_the_bound": HALF,
    "check/bound/recurrences/test_recurrent.py::test_a_result_in_f32_is_within_the_bound": Every(
        1, never=("lstm", "rotation")
    ),
    "check/bound/recurrences/test_recurrent.py::test_the_bound_of_a_delta_rule_includes_the_roundings_of_its_chunks": (
        VALUES
    ),
    "check/validate/test_faults.py::test_faults_that_change_a_result_are_refuted": HALF,
    "check/validate/test_passes.py::test_every_pass_is_proved": HALF,
    "check/test_check.py::test_a_planted_fault_is_named": HALF,
    "check/bound/test_sampling.py::test_fewer_inputs_where_no_cut_is_small": NOT,
    "check/test_coverage.py::test_a_pass_of_large_sizes_alone_is_named": NOT,
    "check/certificates/test_dumps.py::test_an_edited_certificate_fails": HALF,
    # the cost model, the tuner, the command line
    "cost/test_model.py::test_heads_beyond_the_l2_cache_need_an_l2_swizzle": THIRD,
    "cost/test_model.py::test_gemm_times_match_measurements": HALF,
    "cost/test_model.py::test_decoding_times_match_measurements": HALF,
    "cost/test_model.py::test_back_to_back_gemm_times_match_measurements": HALF,
    "test_speed.py::test_spec_to_cuda": HALF,
    "frontend/test_errors.py::test_a_file_full_of_errors_is_quick": HALF,
    "tune/search/test_search.py::test_two_processes_share_a_study": Every(1, never=("sqlite:///{}",)),
    "tune/search/test_search.py::test_a_killed_search_loses_only_the_trial_in_flight": NOT,
    "tune/search/test_search.py::test_from_scratch_tries_neither_default_nor_database_schedules": NOT,
    "tune/test_explain.py::test_a_kernel_that_ptxas_accepts_is_not_refused": NOT,
    "tune/test_explain.py::test_steps_of_a_delta_rule_use_matrix_units_and_a_block_has_rows_of_one_chunk": NOT,
    "tune/test_explain.py::test_a_fused_cluster_combine_is_listed": NOT,
    "tune/space/test_space.py::test_most_points_of_decoding_are_legal": NOT,
    "tune/space/test_space.py::test_random_points_are_schedules_or_say_why_not": HALF,
    "tune/space/test_space.py::test_defaults_are_the_rules": HALF,
    "cli/test_tune.py::test_every_shipped_spec_has_a_plain_schedule": THIRD,
    "cli/test_schedule.py::test_a_schedule_replays_byte_for_byte": HALF,
    "cli/test_schedule.py::test_output_does_not_depend_on_the_hash_seed": HALF,
    "fuzz/test_fuzz.py::test_corpus": VALUES,
}
