"""The cases of the compute protocol that are told in words: the test that stands for each, or why none does.

A test is named by its file under `tests/compute` and its function.
"""

from __future__ import annotations

LOGIC = {
    "frontier/no_response_without_change": ("logic/test_reported.py::test_nothing_is_told_twice"),
    "partition/max_size_wins_over_row_iteration_limit_in_every_order": (
        "logic/test_partition.py::test_too_much_together_comes_before_another_problem_in_every_order"
    ),
    "partition/state_is_driven_by_responses_not_commands": (
        "logic/test_partition.py::test_what_is_merged_begins_with_the_first_response_and_ends_with_the_last"
    ),
    "partition/state_reset_on_new_protocol_iteration": (
        "logic/test_partition.py::test_another_connection_begins_with_nothing_but_the_limit"
    ),
    "reconcile/history_replaced_by_new_commands": (
        "logic/test_reconciliation.py::test_what_a_replica_was_told_is_kept_without_what_begins_and_ends_a_connection"
    ),
    "reconcile/transient_internal_ids_and_source_uppers_are_normalised": (
        "logic/test_reconciliation.py::test_uppers_of_imports_names_and_the_order_of_exports_do_not_matter"
    ),
    "reconcile/reported_frontiers_reset_for_retained": (
        "logic/test_reported.py::test_an_export_that_was_kept_is_told_of_from_its_new_as_of_on"
    ),
    "partition/all_workers_observe_one_command_order": (
        "replica/test_worker_order.py::test_all_workers_are_told_the_same_in_the_same_order"
    ),
    "peek/storage_peek_runs_on_one_deterministic_worker": (
        "replica/test_worker_order.py::test_a_collection_is_peeked_by_one_worker_always_the_same"
    ),
}

PROTOCOL_AND_TRANSPORT = {
    "protocol/no_responses_in_creation_stage": (
        "protocol/test_stages.py::test_no_responses_in_the_creation_stage"
    ),
    "protocol/commands_must_respect_dependencies": (
        "protocol/test_stages.py::test_commands_respect_dependencies"
    ),
    "protocol/asynchrony_both_sides_tolerate_stale_messages": (
        "protocol/test_stages.py::test_messages_that_cross_are_no_violation"
    ),
    "frontier/never_for_uncreated_collections": (
        "protocol/test_stages.py::test_frontiers_of_what_was_never_created_are_refused_on_both_sides"
    ),
    "transport/error_is_sticky": "transport/test_handshake.py::test_an_error_stays_and_is_the_first_one",
    "transport/version_must_match_exactly": (
        "transport/test_handshake.py::test_the_version_must_match_exactly_and_no_command_is_seen"
    ),
    "transport/missing_version_metadata_denied_(gRPC)": (
        "transport/test_handshake.py::test_a_request_without_a_version_is_denied"
    ),
    "transport/first_error_is_the_reported_one_(latest)": (
        "transport/test_liveness.py::test_the_first_error_is_the_reported_one"
    ),
    "transport/recv_is_cancellation_safe": (
        "transport/test_liveness.py::test_no_message_is_lost_however_reading_and_writing_interrupt_each_other"
    ),
    "transport/connect_retries_forever_with_backoff_capped_at_1s": (
        "controller/test_replicas.py::test_the_pause_before_a_try_doubles_up_to_a_second_and_is_left_to_chance"
    ),
    "transport/graceful_close_by_replica_is_a_failure": (
        "transport/test_handshake.py::test_a_replica_that_ends_the_stream_gracefully_is_a_failure"
    ),
    "nonce/responses_of_old_iterations_are_filtered": (
        "replica/test_connections.py::test_what_was_not_sent_on_a_connection_is_not_sent_on_the_next"
    ),
}

CONTROLLER = {
    "controller/command_is_broadcast_to_all_replicas": (
        "controller/test_views.py::test_every_command_goes_to_the_history_and_to_all_replicas"
    ),
    "controller/error_response_also_wins_if_first": (
        "controller/test_peeks.py::test_an_error_that_comes_first_is_the_answer"
    ),
    "controller/targeted_peek_ignores_other_replicas": (
        "controller/test_peeks.py::test_a_targeted_peek_is_asked_of_its_replica_alone_and_others_cannot_answer_it"
    ),
    "controller/cancel_of_unknown_peek_is_a_warning": (
        "controller/test_peeks.py::test_cancelling_what_does_not_wait_is_noted_and_does_nothing"
    ),
    "controller/peek_below_read_hold_is_rejected_by_controller": (
        "controller/test_peeks.py::test_a_peek_below_the_since_is_refused_and_changes_nothing"
    ),
    "controller/untargeted_peek_survives_replica_loss": (
        "controller/test_peeks.py::test_an_untargeted_peek_survives_the_loss_of_a_replica"
    ),
    "controller/stale_epoch_responses_are_dropped": (
        "controller/test_replicas.py::test_what_an_old_connection_says_is_ignored"
    ),
    "controller/replica_frontier_regression_is_ignored": (
        "controller/test_since.py::test_a_report_that_goes_back_is_passed_over"
    ),
    "controller/frontiers_for_unknown_collection_are_soft_errors": (
        "controller/test_since.py::test_reports_of_what_was_not_asked_for_are_passed_over"
    ),
    "controller/input_read_holds_follow_each_replicas_input_frontier": (
        "controller/test_since.py::test_collections_keep_what_the_slowest_replica_still_has_to_read"
    ),
    "controller/only_target_replica_advances_targeted_subscribe": (
        "controller/test_subscriptions.py::test_only_the_target_tells_a_targeted_subscription"
    ),
    "controller/copy_to_first_response_wins_and_closes_frontiers": (
        "controller/test_copies.py::test_the_first_answer_wins_and_no_frontiers_are_owed"
    ),
    "controller/since_is_min_of_all_holds": (
        "controller/test_holds.py::test_a_since_is_the_least_of_its_holds_and_dependencies_go_first"
    ),
    "controller/read_hold_acquired_at_current_since_not_implied": (
        "controller/test_holds.py::test_a_new_hold_is_at_the_since_not_at_the_implied_hold"
    ),
    "controller/read_hold_cannot_be_upgraded_backwards": (
        "controller/test_holds.py::test_a_hold_cannot_go_back"
    ),
    "controller/sink_since_is_write_minus_one": (
        "controller/test_since.py::test_what_is_written_is_held_from_its_last_time_on"
    ),
    "controller/warmup_hold_is_min_input_upper_minus_one": (
        "controller/test_since.py::test_the_warm_up_hold_follows_the_least_input"
    ),
    "controller/no_replicas_lets_index_since_move_forward": (
        "controller/test_since.py::test_without_replicas_an_index_moves_on_with_what_it_reads"
    ),
    "controller/add_replica_replays_reduced_history_and_tracks_from_read_frontier": (
        "controller/test_replicas.py::test_a_replica_is_told_the_reduced_history_from_where_readers_are"
    ),
    "controller/failed_replica_is_rehydrated_with_higher_epoch": (
        "controller/test_replicas.py::test_each_connection_has_a_greater_epoch_and_a_nonce_of_its_own"
    ),
    "controller/empty_as_of_sends_no_dataflow": (
        "controller/test_restart.py::test_a_view_into_a_complete_collection_runs_no_more"
    ),
    "controller/empty_as_of_subscribe_or_copy_to_is_rejected": (
        "controller/test_restart.py::test_a_view_into_a_complete_collection_runs_no_more"
    ),
    "controller/command_counts_for_one_index_one_mv_two_selects": (
        "controller/test_peeks.py::test_every_served_peek_is_followed_by_a_cancel"
    ),
    "schedule/transient_collections_are_immediate": (
        "controller/test_views.py::test_subscriptions_are_scheduled_at_once"
    ),
    "schedule/never_twice_and_never_for_dropped": (
        "controller/test_views.py::test_what_is_dropped_is_not_scheduled"
    ),
    "reconcile/fifteen_of_fifteen_reused_after_controller_restart": (
        "controller/test_restart.py::test_fifteen_views_are_kept_by_two_replicas"
    ),
    "writes/read_only_controller_may_join_read_write_replica": (
        "controller/test_restart.py::test_a_replica_that_may_write_goes_on_writing_for_a_controller_that_allows_nothing"
    ),
}

REPLICA = {
    "frontier/output_is_meet_of_write_and_compute_probe": (
        "replica/test_writing.py::test_how_far_it_was_computed_is_told_apart_from_how_far_it_is_written"
    ),
    "frontier/input_is_meet_of_input_probes": (
        "replica/test_dataflows.py::test_what_was_read_is_the_least_of_the_inputs"
    ),
    "frontier/subscribes_and_copy_tos_never_send_Frontiers": (
        "replica/test_subscriptions.py::test_no_frontiers_are_told_of_a_subscription"
    ),
    "frontier/empty_reported_only_after_inputs_released": (
        "replica/test_dataflows.py::test_the_end_is_told_once_and_only_after_nothing_is_read_any_more"
    ),
    "reconcile/dropped_collections_stay_silent": (
        "replica/test_connections.py::test_nothing_is_said_of_what_the_next_connection_does_not_want"
    ),
    "reconcile/dropped_subscribe_sends_no_DroppedAt": (
        "replica/test_connections.py::test_a_subscription_begins_anew_and_says_nothing_of_its_end"
    ),
    "reconcile/no_errors_logged": (
        "replica/test_connections.py::test_everything_at_once_and_no_word_too_many"
    ),
    "subscribe/first_batch_starts_at_minimum": (
        "replica/test_subscriptions.py::test_the_first_batch_begins_at_the_first_time_and_goes_beyond_the_as_of"
    ),
    "subscribe/batches_are_contiguous_nonempty_consolidated": (
        "replica/test_subscriptions.py::test_batches_follow_each_other_and_are_consolidated"
    ),
    "subscribe/no_DroppedAt_after_completion": (
        "replica/test_dataflows.py::test_until_is_the_end_of_a_subscription"
    ),
    "subscribe/oversized_batch_becomes_error_batch": (
        "replica/test_subscriptions.py::test_a_batch_above_the_limit_is_a_problem_and_the_last_that_is_of_use"
    ),
    "peek/below_since_is_error_not_ub": ("replica/test_peeks.py::test_below_the_since_is_an_error"),
    "peek/pending_when_index_is_dropped_must_not_return_partial_data": (
        "replica/test_peeks.py::test_a_peek_that_waits_for_an_index_that_is_dropped_is_an_error_and_never_rows"
    ),
    "peek/negative_multiplicity_is_error": (
        "replica/test_peeks.py::test_a_row_with_negative_multiplicity_is_held_back"
    ),
    "peek/exactly_one_response_even_if_cancelled_late": (
        "replica/test_peeks.py::test_cancelling_what_is_answered_says_nothing"
    ),
    "peek/Canceled_forbidden_without_CancelPeek": (
        "replica/test_peeks.py::test_nothing_is_cancelled_that_nobody_cancels"
    ),
    "peek/limit_without_order_by_stops_early": (
        "replica/test_peeks.py::test_a_limit_without_an_order_stops_early"
    ),
    "peek/limit_with_order_by_thins_at_twice_the_limit": (
        "replica/test_peeks.py::test_a_limit_with_an_order_keeps_twice_as_many_rows_at_most"
    ),
    "dataflow/starts_suspended_until_every_export_scheduled": (
        "replica/test_dataflows.py::test_a_dataflow_starts_when_all_its_exports_are_scheduled"
    ),
    "dataflow/drop_of_unscheduled_collection_is_clean": (
        "replica/test_dataflows.py::test_one_that_was_never_scheduled_is_dropped_with_all_its_frontiers_told"
    ),
    "dataflow/duplicate_export_id_is_reported": (
        "replica/test_dataflows.py::test_an_export_id_that_is_there_cannot_be_created_again"
    ),
    "writes/read_only_until_AllowWrites": (
        "replica/test_writing.py::test_nothing_is_written_before_it_is_allowed"
    ),
    "config/applies_to_existing_dataflows_and_pending_peeks": (
        "replica/test_peeks.py::test_settings_apply_to_peeks_that_are_on_their_way"
    ),
    "expiration/replica_panics_after_expiry": (
        "replica/test_connections.py::test_a_replica_that_has_reached_its_age_ends_itself_and_a_new_one_answers_the_same"
    ),
}

TESTED: dict[str, str] = LOGIC | PROTOCOL_AND_TRANSPORT | CONTROLLER | REPLICA
"""Name of a case -> `folder/test_file.py::test_name`."""

WITHOUT_TEST: dict[str, str] = {
    "controller/set_read_policy_on_sink_is_an_error": (
        "how much of its past is kept is said when a view is made, and is of its index; nothing sets it later"
    ),
    "history/allow_writes_flag_is_sticky_and_last_(seed_era)": (
        "AllowWrites names an export here, as in later versions; that it is kept is tested with the history"
    ),
    "partition/hydration_flag_waits_for_every_worker_and_is_monotone_(latest)": (
        "responses have no hydration flag: hydrated is what has an output frontier beyond its as-of"
    ),
    "transport/bad_magic_rejected_(CTP)": "of another transport than gRPC, which checks its own preface",
    "transport/heartbeat_every_second_without_bursts_(latest)": (
        "of another transport than gRPC, whose keepalive pings are configured and not ours"
    ),
    "nonce/responses_from_the_future_are_stashed": (
        "all processes of a replica have one connection here: one of them speaks for its workers"
    ),
    "epoch/processes_never_mix_generations": (
        "workers are started and ended by the replica's process and never outlive it: there is no mesh to mix"
    ),
}
"""Name of a case -> why there is nothing to test."""
