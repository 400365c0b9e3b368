"""The rows of Song et al., arXiv:2210.08371, for `features`."""

SONG: dict[str, tuple[str, ...]] = {
  'S0-Eq1': ('test_data.py::test_quadratics_w_star_is_the_minimiser',
    'test_experiment.py::test_weights_by_samples',
    'test_song.py::test_heterogeneity_is_a_mean_over_clients'),
  'S0-Asm3.1': ('test_song.py::test_constants_of_quadratics',
    'test_spectrum.py::test_few_steps_find_the_ends_and_know_how_far_they_are'),
  'S0-Alg1': (
    'test_rounds.py::test_agrees_with_its_numpy_twin[iterative_sketching]',
    'test_rounds.py::test_bytes_are_those_counted_by_hand[iterative_sketching]',
    'test_inventory_gaps.py::test_nothing_but_tables_travels',
    'test_protocols.py::test_a_mismatched_sketch_index_fails_to_descend'),
  'S0-Alg1-mem': (
    'test_inventory_gaps.py::test_the_server_averages_without_a_model',
    'test_describe.py::'
    'test_the_example_costs_what_the_formulas_say[iterative_sketching]'),
  'S0-Alg1-dec': (
    'test_special_cases.py::test_a_special_case_is_the_other_algorithm[tree]',
    'test_topology.py::'
    'test_the_tree_schedule_ends_with_the_exact_sum_everywhere',
    'test_topology.py::'
    'test_flooding_takes_the_diameter_and_the_floats_that_are_counted'),
  'S0-Alg1-lin': ('test_sketch_laws.py::test_linear',
    'test_secure_aggregation.py::'
    'test_the_secure_sum_of_sketches_is_the_sketch_of_the_sum'),
  'S0-Alg2 = Alg3': (
    'test_private_local.py::test_it_is_its_twin_given_the_noise',
    'test_private_local.py::'
    'test_the_noise_has_its_standard_deviation_whoever_is_there',
    'test_private_local.py::'
    'test_one_sample_moves_a_step_by_no_more_than_its_clip',
    'test_private_special_cases.py::'
    'test_without_noise_and_bound_it_is_the_other_algorithm'
    '[private_iterative_sketching]',
    'test_private_runs.py::test_private_samples_from_config_to_summary'),
  'S0-Alg2b': (
    'test_sketch_space.py::test_no_update_moves_a_table_by_more_than_its_share',
    'test_sketch_space.py::test_the_wrong_order_is_caught',
    'test_private_aggregation.py::'
    'test_the_noise_is_of_the_stated_size_whoever_takes_part'),
  'S0-ext': ('test_inventory_gaps.py::'
    'test_all_that_is_compared_converges[momentum and batches]',
    'test_rounds.py::'
    'test_agrees_with_its_numpy_twin[iterative_sketching_momentum]'),
  'S0-w0': ('test_inventory_gaps.py::test_equal_seeds_start_alike',
    'test_rounds.py::'
    'test_a_client_that_hears_the_broadcasts_has_the_servers_parameters',
    'test_traffic.py::'
    'test_who_was_away_pays_for_what_was_missed_but_no_more_than_dense'),
  'S0-D1': ('test_sketch_parts.py::test_two_words_are_independent',
    'test_sketch_parts.py::test_four_words_have_independent_signs',
    'test_sketch_parts.py::test_products_modulo_the_prime_never_wrap'),
  'S0-D2': ('test_sketch_twins.py::test_operator_is_its_twin[gaussian]',),
  'S0-D3': ('test_sketch_twins.py::test_operator_is_its_twin[srht]',
    'test_sketch_parts.py::test_hadamard_transform_is_its_matrix',
    'test_sketch_laws.py::test_moments[srht]',
    'test_sketch_memory.py::test_extra_memory_at_a_hundred_million[srht]'),
  'S0-D4': ('test_sketch_twins.py::test_operator_is_its_twin[ams]',
    'test_sketch_memory.py::test_dense_matrices_are_made_of_tiles'),
  'S0-D5': ('test_sketch_twins.py::test_count_sketch_is_its_twin',
    'test_sketch_parts.py::test_two_words_are_independent'),
  'S0-D6': ('test_sketch_twins.py::test_operator_is_its_twin[kind I]',),
  'S0-D7': ('test_sketch_twins.py::test_operator_is_its_twin[kind II]',),
  'S0-D8': ('test_sketch_twins.py::test_operator_is_its_twin[sampling]',),
  'S0-Def4.1/D9': ('test_verify.py::test_kept_promises_hold',
    'test_verify.py::test_a_broken_promise_fails_its_row',
    'test_sketch_laws.py::test_coordinate_wise_constant'),
  'S0-RemD10': (
    'test_inventory_gaps.py::test_exact_variances_and_projections',),
  'S0-Thm4.2': ('test_sketch_laws.py::test_linear',
    'test_sketch_laws.py::test_moments',
    'test_protocols.py::test_hashes_are_fresh_every_round_unless_of_the_run'),
  'S0-Tab1': ('test_sketch_laws.py::test_printed_constants',
    'test_sketch_laws.py::test_moments', 'test_verify.py::test_the_table',
    'test_song.py::test_alpha_is_that_of_the_operators'),
  'S0-LemD11': ('test_sketch_laws.py::test_moments',),
  'S0-LemD12': (
    'test_inventory_gaps.py::test_exact_variances_and_projections[srht]',
    'test_inventory_gaps.py::test_exact_variances_and_projections[ams]'),
  'S0-LemD13': (
    'test_inventory_gaps.py::test_exact_variances_and_projections[gaussian]',),
  'S0-LemD14': ('test_inventory_gaps.py::'
    'test_exact_variances_and_projections[count_sketch]',),
  'S0-LemD15': (
    'test_inventory_gaps.py::test_exact_variances_and_projections[embedding_1]',
    'test_inventory_gaps.py::test_exact_variances_and_projections[embedding_2]',
    'test_inventory_gaps.py::test_moments_of_a_sparse_embedding'),
  'S0-LemD16, RemD17': (
    'test_inventory_gaps.py::test_exact_variances_and_projections[sampling]',
    'test_sketch_laws.py::test_coordinate_wise_constant[sampling]'),
  'S0-LemD18..22': ('test_embeddings_theory.py::'
    'test_printed_coherence_is_that_of_a_single_pair',
    'test_embeddings_theory.py::'
    'test_printed_coherence_of_sparse_columns_is_as_wrong',
    'test_embeddings_theory.py::test_coherence_of_sparse_columns'),
  'S0-LemD23,24': ('test_embeddings_theory.py::test_tails[srht]',
    'test_embeddings_theory.py::test_tails[ams]',
    'test_embeddings_theory.py::test_tails[gaussian]'),
  'S0-LemD25,26': ('test_embeddings_theory.py::test_tails[count_sketch]',
    'test_embeddings_theory.py::test_lemma_d_25_needs_two_buckets',
    'test_embeddings_theory.py::test_property_3_is_not_of_the_count_sketch',
    'test_embeddings_theory.py::test_the_constant_of_lemma_d_26'),
  'S0-LemD27': ('test_embeddings_theory.py::test_tails[sparse_embedding]',),
  'S0-LemD28': ('test_embeddings_theory.py::test_tails[uniform_sampling]',
    'test_embeddings_theory.py::test_what_uniform_sampling_may_do'),
  'S0-B1..B8': ('test_embeddings_theory.py::'
    'test_the_norms_of_gaussian_sketches_are_chi_squares',),
  'S0-E1': ('test_song_measured.py::test_bounds_hold[S0-E1]',
    'test_song_measured.py::test_e1_is_attained'),
  'S0-E2': ('test_song_measured.py::test_bounds_hold[S0-E2]',),
  'S0-E3': ('test_song_measured.py::test_bounds_hold[S0-E3]',),
  'S0-RemE4': ('test_song.py::test_rounds_grow_as_1_plus_alpha',
    'test_song_measured.py::test_rounds_grow_as_remark_e_4_says'),
  'S0-DefF1, LemF2': ('test_song_lemmas.py::test_updates_are_unified',
    'test_song_lemmas.py::test_trajectories_are_those_of_the_algorithm'),
  'S0-LemF3': ('test_song_lemmas.py::test_lemmas_hold_in_every_step',),
  'S0-LemF4': ('test_song_lemmas.py::test_lemmas_hold_in_every_step',),
  'S0-LemF5': ('test_song_lemmas.py::test_lemmas_hold_in_every_step',),
  'S0-LemF6': ('test_song_lemmas.py::test_recursion_holds_in_expectation',),
  'S0-Thm5.3=F7': ('test_song_measured.py::test_bounds_hold[S0-Thm5.3]',
    'test_song.py::test_steps_are_checked'),
  'S0-Cor5.4=F8': ('test_song_plans.py::test_plans_split_the_target',
    'test_song_plans.py::test_cheapest_convex_plan_is_that_of_corollary_5_4',
    'test_song_measured.py::test_plans_reach_their_targets'),
  'S0-KMR19': ('test_song_plans.py::'
    'test_sketching_saves_a_factor_d_only_where_clients_differ',
    'test_song_plans.py::test_table_has_what_the_functions_compute'),
  'S0-Thm5.1=F9': ('test_song_measured.py::test_bounds_hold[S0-Thm5.1]',
    'test_song_measured.py::test_labels_say_what_is_measured'),
  'S0-Cor5.2=F10': ('test_song_plans.py::'
    'test_cheapest_strongly_convex_plan_is_that_of_corollary_5_2',
    'test_song_plans.py::test_printed_threshold_is_half_of_the_true_one',
    'test_song_measured.py::test_rounds_times_size_is_constant'),
  'S0-LinRate': ('test_song_plans.py::test_rate_is_linear_down_to_its_target',
    'test_song_measured.py::test_rate_is_linear_where_clients_are_alike'),
  'S0-G1, G2': ('test_song_measured.py::test_bounds_hold[S0-G2]',
    'test_song_measured.py::test_printed_nonconvex_bounds_are_violated',
    'test_song_measured.py::test_corrected_nonconvex_step_holds'),
  'S0-H1': (
    'test_audit.py::test_a_bound_is_below_the_epsilon_of_gaussians_and_near_it',
    'fl_sketch/privacy/gaussian.py'),
  'S0-H2': (
    'test_accounting_sampling.py::test_disjoint_data_cost_the_largest_epsilon',
    'test_accounting_errors.py::'
    'test_parallel_composition_refuses_what_is_no_epsilon'),
  'S0-H3': ('test_bounds.py::test_advanced_composition',
    'test_bounds.py::test_composition_bounds_hold_and_are_ordered'),
  'S0-H4': ('test_bounds.py::test_amplification',),
  'S0-H5, RemH10': (
    'test_inventory_gaps.py::test_a_sketch_changes_no_epsilon',),
  'S0-H6, H7': ('test_bounds.py::test_the_gaussian_lemma_is_loose',
    'test_bounds.py::test_the_gaussian_lemma_fails_at_a_large_epsilon',
    'test_accounting.py::test_closed_form_agrees_with_an_integral',
    'test_mechanisms.py::test_the_sensitivities_are_attained'),
  'S0-H8': (
    'test_private_samples.py::test_one_sample_moves_a_clipped_sum_by_at_most_c',
    'test_private_samples.py::'
    'test_clipped_sums_equal_a_loop_whatever_the_microbatch'),
  'S0-6.1=H9': ('test_inventory_gaps.py::test_epsilon_of_local_steps',
    'test_song_privacy.py::test_no_constant_mends_theorems_6_1_and_6_2'),
  'S0-6.2=H11': ('test_bounds.py::test_what_theorem_6_2_drops',
    'test_bounds.py::test_theorem_6_2_is_false_at_a_large_epsilon',
    'test_bounds.py::'
    'test_theorem_6_2_is_false_for_batches_of_one_under_replace_one',
    'test_song_privacy.py::test_no_constant_mends_theorems_6_1_and_6_2'),
  'S0-7.1': ('test_attacks.py::test_the_whole_gradient_gives_the_input_away',
    'python -m launch.attack --config=configs/tanh_attack.py'),
  'S0-7.2': (
    'test_attacks.py::test_the_objective_and_its_gradient_are_their_formulas',
    'test_attacks.py::test_four_numbers_for_each_unknown_give_the_input_away',
    'test_attacks.py::test_fewer_numbers_than_unknowns_hide_the_input',
    'python -m launch.attack --config=configs/tanh_attack.py'),
  'S0-Def7.1/I7': (
    'test_pseudo_hessian.py::test_autodiff_equals_finite_differences',
    'test_pseudo_hessian.py::'
    'test_products_and_spectrum_are_those_of_the_matrix'),
  'S0-Def7.2/I4': (
    'test_properties.py::test_estimates_are_the_extremes_that_pairs_allow',
    'test_properties.py::test_falsifiers_find_what_is_false_and_nothing_else'),
  'S0-I2,I3': ('test_properties.py::test_constants_of_a_quadratic_are_exact',
    'test_properties.py::'
    'test_a_pair_keeps_a_property_from_the_needed_constant_on',
    'test_properties.py::test_falsifiers_find_what_is_false_and_nothing_else'),
  'S0-I5': (
    'test_properties.py::test_estimates_are_the_extremes_that_pairs_allow',
    'test_properties.py::test_falsifiers_find_what_is_false_and_nothing_else'),
  'S0-Def7.3/I6': (
    'test_properties.py::test_constants_of_a_quadratic_are_exact',
    'test_properties.py::test_what_lies_below_zero_has_critical_points',
    'test_properties.py::'
    'test_a_pair_keeps_a_property_from_the_needed_constant_on'
    '[non-critical point]'),
  'S0-K1': ('test_properties.py::test_constants_of_a_quadratic_are_exact',
    'test_properties.py::test_estimates_are_the_extremes_that_pairs_allow'),
  'S0-I8, I9': (
    'test_properties.py::test_a_semi_lipschitz_gradient_is_semi_smooth',),
  'S0-Tab2': ('test_properties.py::test_table_2',
    'python -m launch.reproduce S0-Tab2',),
  'S0-J1..J3': ('test_pseudo_hessian.py::'
    'test_assumptions_are_exact_where_the_gradient_is_linear',),
  'S0-7.4=J4+J5': ('test_leakage_theory.py::'
    'test_constants_of_a_linear_gradient_and_those_that_are_printed',),
  'S0-7.5=L1': (
    'test_leakage_theory.py::test_both_rates_hold_for_a_linear_gradient',
    'test_leakage_theory.py::'
    'test_linear_decrease_holds_where_its_margin_is_met',
    'test_leakage_theory.py::'
    'test_the_attack_theorem_never_meets_its_own_constants',
    'test_pseudo_hessian.py::test_loss_falls_as_promised_on_a_network'),
  'S0-K2': (
    'test_properties.py::test_semi_strong_convexity_makes_the_minimum_unique',
    'test_leakage_recovery.py::'
    'test_recovery_and_growth_where_c_and_alpha_count'),
  'S0-K3': ('test_leakage_recovery.py::test_recovery_of_a_quadratic',
    'test_leakage_recovery.py::test_recovery_pays_for_alpha_and_c',
    'test_leakage_recovery.py::'
    'test_recovery_and_growth_where_c_and_alpha_count'),
  'S0-7.6=M3': (
    'test_leakage_theory.py::test_constants_of_a_sketched_nonlinear_gradient',
    'test_leakage_theory.py::'
    'test_the_printed_constant_of_sketched_semi_smoothness_is_too_small'),
  'S0-7.7=M4, M1, M2': (
    'test_leakage_theory.py::test_constants_of_a_sketched_nonlinear_gradient',
    'test_leakage_theory.py::'
    'test_the_sketched_constants_are_a_lower_bound_of_the_measured_one'),
  'S0-7.8': (
    'test_leakage_theory.py::test_both_rates_hold_for_a_linear_gradient[True]',
    'test_leakage_theory.py::'
    'test_the_attack_theorem_never_meets_its_own_constants'),
  'S0-def': ('test_attacks.py::test_much_noise_hides_the_input',
    'test_attacks.py::test_noise_moves_what_is_found_as_in_the_linear_problem',
    'test_pseudo_hessian.py::'
    'test_noise_moves_what_is_recovered_by_at_most_its_size'),
}  # fmt: skip
