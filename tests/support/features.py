"""What covers each system, operator, mechanism and formula of the papers.

Rows are named after a paper: S0 Song et al. (arXiv:2210.08371), S1 Das et al.
(arXiv:2106.07094), S2 Haddadpour et al. (arXiv:2008.04975), S4 Chen et al.
(arXiv:2411.06770). A row is covered by tests, as pytest calls them, with a part
of a parameter's name in brackets; by modules with doctests; by commands; or,
where it is an experiment that is yet to come, by the issue that brings it.
"""

from features_song import SONG

COVERAGE: dict[str, tuple[str, ...]] = SONG | {
  'S1-Eq1': ('test_data.py::test_quadratics_w_star_is_the_minimiser',
    'test_training.py::test_evaluation_covers_the_test_set_once'),
  'S1-Def1': ('test_das_lemmas.py::test_heterogeneity_is_exact_and_numeric',),
  'S1-Def2': ('test_bounds.py::test_the_gaussian_lemma_is_loose',
    'test_mechanisms.py::test_noise_is_normal'),
  'S1-Def3,4': ('test_das_lemmas.py::test_constants_are_between_what_is_known',
    'test_spectrum.py::test_gradient_norms_of_clients'),
  'S1-Def5': ('test_bounds.py::test_das_key_quantity_is_the_noise_of_one_round',
    'test_das_theory.py::test_conditions_of_the_rates'),
  'S1-Eq4': ('test_norms.py::test_the_norm_of_any_tree_is_bounded',
    'test_norms.py::test_a_tree_within_the_bound_comes_back',
    'test_norms.py::test_a_scaled_tree_has_norm_c_and_its_direction'),
  'S1-Eq12': ('test_norms.py::test_a_scaled_tree_has_norm_c_and_its_direction',
    'test_norms.py::test_zeros_and_what_is_not_finite'),
  'S1-Thm1': ('test_das_theory.py::test_the_noise_is_that_of_theorem_1',
    'test_private_special_cases.py::test_the_noise_on_a_servers_mean',
    'test_bounds.py::test_das_constant_is_not_one_number',
    'test_account.py::test_the_program_prints_and_leaves_its_files'),
  'S1-Alg1': ('test_rounds.py::test_agrees_with_its_numpy_twin[dp_fedavg]',
    'test_private_aggregation.py::test_the_sum_is_divided_by_a_constant',
    'test_cohorts.py::test_poisson_sizes_have_the_binomial_mean_and_variance',
    'test_cohorts.py::test_pairs_are_equally_likely'),
  'S1-Alg2': (
    'test_rounds.py::test_agrees_with_its_numpy_twin[dp_normfedavg]',),
  'S1-Alg3': ('test_private_special_cases.py::'
    'test_without_noise_and_bound_it_is_the_other_algorithm[dp_fedavg {}]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[fedavg]',
    'test_cohorts.py::test_pairs_are_equally_likely'),
  'S1-Thm2=Thm5': (
    'test_das_theory.py::test_the_schedule_is_that_of_the_theorems',
    'test_das_theory.py::test_conditions_of_the_rates',
    'test_das_measured.py::test_rates_hold[clip]',
    'test_das_measured.py::test_rates_hold_of_the_library[clip]'),
  'S1-Thm3': ('test_das_measured.py::'
    'test_theorem_3_has_a_constant_of_one_for_one_reading',),
  'S1-Eq8': ('test_das_measured.py::test_the_lipschitz_case_holds',),
  'S1-Asm1': ('test_das_lemmas.py::test_proposition_1_holds',
    'test_das_lemmas.py::test_constants_are_between_what_is_known'),
  'S1-Prop1': ('test_das_lemmas.py::test_proposition_1_holds',),
  'S1-Eq11': (
    'test_das_theory.py::test_the_best_number_of_local_steps_is_found',
    'test_das_theory.py::test_equation_11_is_above_equation_8',
    'test_das_measured.py::test_equation_11_holds_with_curvature'),
  'S1-Thm4=Thm6': ('test_das_measured.py::test_rates_hold[normalize]',
    'test_das_measured.py::test_rates_hold_of_the_library[normalize]',
    'test_das_measured.py::test_the_rate_of_normalisation_may_have_content'),
  'S1-Rem1, 5.1, Eq15-17': ('test_das_theory.py::'
    'test_remark_1_holds_from_a_distance_on_and_not_at_the_optimum',
    'test_das_theory.py::test_the_table_has_the_comparison',
    'test_das_measured.py::test_normalisation_is_better_far_and_worse_near'),
  'S1-Clow': ('test_das_measured.py::'
    'test_below_the_shortest_update_clipping_is_normalisation',
    'test_private_special_cases.py::'
    'test_without_noise_and_bound_it_is_the_other_algorithm[dp_normfedavg]'),
  'S1-Lem1': ('test_das_lemmas.py::test_lemma_1_holds',),
  'S1-Lem2': ('test_das_lemmas.py::test_lemmas_2_and_3_hold',),
  'S1-Lem3': ('test_das_lemmas.py::test_lemmas_2_and_3_hold',),
  'S1-Lem4': ('test_das_lemmas.py::test_lemma_4_and_fact_2_hold',),
  'S1-Fact1-3': ('test_das_lemmas.py::test_lemmas_2_and_3_hold',
    'test_das_lemmas.py::test_lemma_4_and_fact_2_hold',
    'test_das_lemmas.py::test_fact_3_holds_to_a_thirtieth'),
  'S1-Fig1': ('python -m launch.sweep --config=configs/das_quadratics.py',
    'test_data.py::test_quadratics_have_the_stated_law',
    'python -m launch.reproduce S1-Fig1'),
  'S1-Fig2': ('python -m launch.reproduce S1-Fig2',),
  'S1-Fig3': ('python -m launch.reproduce S1-Fig3',),
  'S1-Sec6': ('python -m launch.train --config=configs/fashion_dp.py',
    'python -m launch.account --config=configs/fashion_dp.py',
    'test_experiment.py::test_every_config_plays_its_quick_variant',
    'python -m launch.reproduce S1-Sec6'),
  'S1-Tab1': ('python -m launch.sweep --config=configs/fashion_dp_sweep.py',
    'test_sweep_lines.py::'
    'test_test_metrics_are_means_over_the_last_evaluations',
    'python -m launch.reproduce S1-Tab1'),
  'S1-AppG': ('test_partitions.py::'
    'test_label_shards_hold_few_labels_and_have_near_equal_sizes',
    'test_schedule.py::test_a_decayed_rate_is_that_rate',
    'python -m launch.train --config=configs/fashion_dp.py'),
  'S2-Eq1': ('test_experiment.py::test_weights_by_samples',
    'test_comms.py::test_uplink_is_the_weighted_mean'),
  'S2-Alg1': ('test_sketch_twins.py::test_count_sketch_is_its_twin[median]',),
  'S2-Def1': ('test_codecs.py::test_unbiased',
    'test_codecs.py::test_squared_error_is_below_omega',
    'test_verify.py::test_kept_promises_hold',
    'test_haddadpour_compressors.py::'
    'test_property_1_is_loose_and_what_corrects_it_exact_for_one_row'),
  'S2-Alg2': ('test_sketch_twins.py::test_count_sketch_is_its_twin[median]',
    'test_sketch_parts.py::test_median_is_numpys',
    'test_sketch_parts.py::test_network_finds_the_middle'),
  'S2-Prop1': ('test_sketch_laws.py::test_moments[median]',
    'test_haddadpour_compressors.py::'
    'test_property_1_is_loose_and_what_corrects_it_exact_for_one_row'),
  'S2-Rem2': (
    'test_haddadpour_compressors.py::test_remark_2_wants_one_over_mu_squared',),
  'S2-Def2, Asm1, Thm1': (
    'test_bounds.py::test_the_heuristic_of_count_sketch_covers_few_columns',
    'test_bounds.py::test_no_accountant_takes_a_bound'),
  'S2-Def3': ('test_codecs.py::test_contraction',
    'test_haddadpour_compressors.py::test_lemma_1_wants_its_scale'),
  'S2-Lem1': ('test_haddadpour_compressors.py::test_lemma_1_wants_its_scale',
    'test_codecs.py::test_contraction[small_sketch]'),
  'S2-Alg3': ('test_estimators.py::test_heavymix_is_its_twin',
    'test_estimators.py::test_norm_has_its_law',
    'test_estimators.py::test_support_has_what_is_heavy_and_is_distinct',
    'test_estimators.py::test_fill_is_uniform_on_the_complement'),
  'S2-Lem2': ('test_estimators.py::test_heavymix_contracts_with_exact_values',
    'test_estimators.py::test_heavymix_expands_with_estimates',
    'test_haddadpour_compressors.py::'
    'test_lemma_2_and_corollary_1_fail_of_a_row_that_finds_nothing'),
  'S2-Lem3': (
    'test_haddadpour_compressors.py::test_lemma_3_and_corollary_1_hold',),
  'S2-Alg4': ('test_estimators.py::test_heaprix_is_its_twin',
    'test_estimators.py::test_shared_heaprix_shrinks'),
  'S2-Cor1, Rem4': (
    'test_haddadpour_compressors.py::test_lemma_3_and_corollary_1_hold',
    'test_haddadpour_compressors.py::'
    'test_lemma_2_and_corollary_1_fail_of_a_row_that_finds_nothing',
    'test_estimators.py::test_fresh_heaprix_is_unbiased',
    'test_special_cases.py::'
    'test_a_special_case_is_the_other_algorithm[heaprix k=d]'),
  'S2-Alg5': (
    'test_rounds.py::test_agrees_with_its_numpy_twin[fedsketch_privix]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[heaprix_exact]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[heaprix_literal]',
    'test_special_cases.py::'
    'test_a_special_case_is_the_other_algorithm[diffsketch is privix]',
    'test_rounds.py::test_bytes_are_those_counted_by_hand[heaprix_exact]',
    'test_cohorts.py::test_with_replacement_counts_every_draw'),
  'S2-Alg6': ('test_rounds.py::test_agrees_with_its_numpy_twin[fedsketchgate]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[fedsketchgate_printed]',
    'test_algorithm_laws.py::'
    'test_tracking_reaches_the_optimum_of_unlike_clients',
    'test_algorithm_laws.py::'
    'test_a_median_in_the_variates_lets_their_sum_drift'),
  'S2-Rem5,6': (
    'test_rounds.py::test_bytes_are_those_counted_by_hand[fedsketch_privix]',),
  'S2-Asm2-5': (
    'test_haddadpour_lemmas.py::test_constants_are_between_what_is_known',),
  'S2-Thm2 = Thm5-8': (
    'test_haddadpour_theory.py::test_plans_meet_their_conditions_and_promises',
    'test_haddadpour_theory.py::'
    'test_the_printed_rounds_of_a_convex_loss_are_too_few',
    'test_haddadpour_measured.py::'
    'test_the_printed_rounds_of_a_convex_loss_leave_it_where_it_was',
    'test_haddadpour_measured.py::'
    'test_the_printed_rounds_of_a_nonconvex_loss_are_too_few'),
  'S2-Eq16, Rem7/Eq23': (
    'test_haddadpour_theory.py::test_the_largest_step_meets_equation_16',
    'test_haddadpour_measured.py::'
    'test_the_printed_step_diverges_with_shared_hashes'),
  'S2-Thm5': ('test_haddadpour_measured.py::test_theorem_5_holds',
    'test_haddadpour_measured.py::'
    'test_theorems_5_and_6_are_nearly_met_at_the_largest_step'),
  'S2-Cor4,5': ('test_haddadpour_theory.py::test_the_speedup_is_linear',
    'test_haddadpour_measured.py::test_corollaries_4_and_5_hold'),
  'S2-Thm6, Cor6': ('test_haddadpour_measured.py::test_theorem_6_holds',
    'test_haddadpour_measured.py::'
    'test_theorem_6_holds_of_the_library_and_its_printed_form_does_not'),
  'S2-Thm7': ('test_haddadpour_measured.py::test_theorem_7_holds',),
  'S2-Lem4-6': (
    'test_haddadpour_lemmas.py::test_lemma_4_holds_and_is_met_by_one_row',
    'test_haddadpour_lemmas.py::test_lemmas_5_and_6_hold',
    'test_haddadpour_lemmas.py::'
    'test_lemmas_4_and_6_fail_where_gradients_follow_the_noise'),
  'S2-Thm3 = Thm9': ('test_haddadpour_theory.py::'
    'test_fedsketchgate_is_fedsketch_with_shared_hashes',
    'test_haddadpour_measured.py::'
    'test_theorem_3_reaches_its_accuracy_in_the_library'),
  'S2-Cor2,3': ('test_haddadpour_theory.py::test_tables_have_the_plans',
    'test_haddadpour_theory.py::test_scaffold_is_dense',
    'test_haddadpour_theory.py::'
    'test_a_sketch_saves_no_floats_for_a_given_accuracy'),
  'S2-Tab1, Tab2': ('test_haddadpour_theory.py::test_tables_have_the_plans',
    'fl_sketch/theory/haddadpour/tables.py'),
  'S2-6.4': ('test_haddadpour_theory.py::test_tables_have_the_plans',
    'test_special_cases.py::'
    'test_a_special_case_is_the_other_algorithm[diffsketch is privix]'),
  'S2-Base': ('test_rounds.py::test_agrees_with_its_numpy_twin[fedsgd]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[sketched_sgd]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[sketched_sgd_momentum]',
    'test_algorithm_laws.py::'
    'test_sketched_sgd_forgets_what_got_through_and_nothing_else',
    'test_inventory_gaps.py::test_all_that_is_compared_converges[sketched_sgd]'),
  'S2-Fig1': ('python -m launch.train --config=configs/mnist_fedsketch.py',
    'python -m launch.compare', 'python -m launch.reproduce S2-Fig1'),
  'S2-Fig2': ('python -m launch.compare', 'test_partitions.py::'
    'test_classes_per_client_is_exact_and_as_even_as_the_labels_allow',
    'python -m launch.reproduce S2-Fig2'),
  'S4-Alg1': ('test_rounds.py::test_agrees_with_its_numpy_twin[safl_amsgrad]',
    'test_algorithm_laws.py::'
    'test_a_client_that_listens_has_the_servers_moments',
    'test_rounds.py::test_bytes_are_those_counted_by_hand[safl_amsgrad]'),
  'S4-Alg2': ('test_rounds.py::test_agrees_with_its_numpy_twin[safl_amsgrad]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[safl_adam]',
    'test_special_cases.py::'
    'test_a_special_case_is_the_other_algorithm[safl amsgrad]',
    'test_algorithm_laws.py::'
    'test_the_largest_second_moment_of_amsgrad_never_falls'),
  'S4-Rem3.1': ('test_algorithm_laws.py::'
    'test_a_hash_is_constant_only_where_its_tables_outlive_a_round',
    'test_sketches.py::test_one_hash_for_the_whole_cohort'),
  'S4-Prop1-3': ('test_sketch_laws.py::test_linear',
    'test_sketch_laws.py::test_moments',
    'test_embeddings_theory.py::test_tails',
    'test_embeddings_theory.py::test_property_3_is_not_of_the_count_sketch'),
  'S4-Asm1,2': ('test_chen_measured.py::test_theorem_4_4',
    'test_spectrum.py::test_gradient_norms_of_clients'),
  'S4-Asm3': ('test_chen.py::test_the_scale_of_noise',),
  'S4-Asm4, Def3.1': ('test_chen.py::test_intrinsic_dimensions',
    'test_spectrum.py::test_intrinsic_dimensions'),
  'S4-Thm3.2': ('test_chen.py::test_every_term_of_theorems_3_2_and_b_3',
    'test_chen_measured.py::test_theorem_3_2',
    'test_chen_measured.py::test_the_dimension_enters_by_its_logarithm',
    'test_chen_printed.py::test_noise_breaks_theorem_3_2_and_corollary_1'),
  'S4-Rem3.3': ('test_chen.py::test_remark_3_3',),
  'S4-Cor1': ('test_chen.py::test_rates',
    'test_chen_printed.py::test_the_conditions_of_corollary_1',
    'test_chen_printed.py::test_noise_breaks_theorem_3_2_and_corollary_1'),
  'S4-Cor2': ('test_chen.py::test_the_size_of_corollary_2',
    'test_chen.py::test_the_conditions_of_corollary_2',
    'test_chen.py::test_rates',
    'test_chen_printed.py::test_corollary_2_lacks_a_square'),
  'S4-Lem3.3=B1': ('test_chen_measured.py::test_lemma_3_3',),
  'S4-Lem3.4=B2=C2': ('test_chen_measured.py::test_lemmas_3_4_to_3_6',
    'test_chen_printed.py::test_an_eigenvector_that_moves_breaks_lemma_3_4'),
  'S4-Lem3.5': ('test_chen_measured.py::test_lemmas_3_4_to_3_6',
    'test_chen_printed.py::test_noise_breaks_lemmas_3_4_and_3_5'),
  'S4-Lem3.6': ('test_chen_measured.py::test_lemmas_3_4_to_3_6',
    'test_chen_printed.py::test_lemma_3_6_lacks_the_gradient'),
  'S4-Rem3.4': ('test_embeddings_theory.py::test_remark_3_4',),
  'S4-ThmB3, LemB4': ('test_chen_measured.py::test_theorem_b_3',
    'test_chen.py::test_the_momentum_of_a_decaying_rate',
    'test_chen.py::test_the_schedule_is_one_of_optax'),
  'S4-Lem4.1': ('test_chen.py::test_lemma_4_1',),
  'S4-Lem4.2=C1': ('test_chen.py::test_lemma_4_2',),
  'S4-Lem4.3, M1..M8': ('test_chen_printed.py::test_lemma_4_3_depends_on_eta',
    'test_chen.py::test_the_conditions_of_theorem_4_4'),
  'S4-Thm4.4': ('test_chen_measured.py::test_theorem_4_4',
    'test_chen.py::test_the_conditions_of_theorem_4_4'),
  'S4-Tab1': ('test_chen.py::test_table_1',
    'python -m launch.reproduce S4-Tab1'),
  'S4-Base': ('test_inventory_gaps.py::test_all_that_is_compared_converges',
    'test_algorithm_laws.py::'
    'test_fetchsgd_needs_a_table_that_is_large_enough_for_its_k',
    'test_rounds.py::test_agrees_with_its_numpy_twin[fetchsgd]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[marina]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[cocktail_sgd]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[cd_adam]',
    'test_rounds.py::test_agrees_with_its_numpy_twin[onebit_adam]'),
  'S4-Fig1': ('python -m launch.reproduce S4-Fig1',),
  'S4-Fig2': ('python -m launch.reproduce S4-Fig2',),
  'S4-Fig3': ('python -m launch.reproduce S4-Fig3',),
  'S4-Fig4': ('test_spectrum_run.py::'
    'test_eigenvalues_of_lenet_on_mnist_follow_a_power_law',
    'test_spectrum.py::test_an_exact_power_law_is_found',
    'python -m launch.spectrum --config=configs/mnist_fedavg.py',
    'python -m launch.reproduce S4-Fig4'),
  'S4-Fig5': (
    'test_spectrum.py::test_moments_agree_with_hutchinson_and_the_truth',
    'test_spectrum_run.py::test_every_other_round_has_its_spectrum',
    'python -m launch.reproduce S4-Fig5'),
  'S4-Fig6': ('python -m launch.reproduce S4-Fig6',),
  'S4-AppD': ('test_losses.py::test_cross_entropy_is_its_numpy_twin',
    'test_rounds.py::test_agrees_with_its_numpy_twin[safl_cosine]',
    'python -m launch.train --config=configs/mnist_safl.py',
    'python -m launch.reproduce S4-AppD'),
  'S4-Layer': ('test_layerwise.py::test_unbiased',
    'test_layerwise.py::test_second_moments_add_up_over_the_leaves',
    'test_rounds.py::test_agrees_with_its_numpy_twin[safl_layerwise]'),
}  # fmt: skip
