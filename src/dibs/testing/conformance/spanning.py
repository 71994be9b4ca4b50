"""The cases that one engine may be unable to pass: they need steps over several queues (`Feature.CROSS_QUEUE`).

They wait for tasks of other queues, replay there, act on or read events of all queues at once, or rely on a claim that
does the upkeep of queues which it does not serve.
"""

from __future__ import annotations

__all__ = ["SPANNING"]

SPANNING: dict[str, frozenset[str]] = {
    "act_on": frozenset(
        {
            "counting_is_bounded",
            "counts_by_queue_name_and_state_are_exact",
            "counts_what_the_act_is_for",
            "ends_at_once_if_nothing_can_match",
            "ends_at_once_in_an_empty_store",
            "is_in_the_audit_log",
            "the_same_id_begins_once",
        }
    ),
    "act_replay": frozenset(
        {
            "draining_queue_refuses",
            "into_a_new_queue",
            "into_another_queue",
        }
    ),
    "act_workflows": frozenset(
        {
            "replay_into_a_draining_queue",
        }
    ),
    "advance": frozenset(
        {
            "at_one_instant_that_ends_too",
            "claims_do_nothing_about_it",
            "each_act",
            "goes_on_in_bounded_parts",
            "its_end_is_in_the_audit_log",
            "leaves_alone_what_ended_later",
            "leaves_alone_what_started_later",
            "leaves_newer_tasks_alone",
            "not_all_that_it_visits_change",
            "replaying_what_dies_again_ends",
            "several_callers_at_once_do_nothing_twice",
            "survives_its_caller",
            "the_leader_goes_on",
            "what_has_ended_stays_as_it_is",
            "what_has_started_since_is_asked_to_stop",
        }
    ),
    "audit": frozenset(
        {
            "an_act_on_all_that_match_tells_what_it_sets",
            "cancel_replay_and_purge_tell_the_states",
            "every_admin_verb_is_remembered",
            "pages_by_number",
        }
    ),
    "blocked": frozenset(
        {
            "a_queue_with_blocked_tasks_is_not_deleted",
            "a_run_without_a_queue_to_go_back_to_is_an_end",
            "force_buries_blocked_tasks_too",
            "force_is_an_end_for_those_who_wait_elsewhere",
            "settings_of_its_queue_are_those_when_it_is_unblocked",
        }
    ),
    "claim": frozenset(
        {
            "merge_compares_what_ageing_made_of_priorities",
            "promotes_what_is_due_in_all_queues",
            "promotion_is_bounded_and_by_due_time",
            "tells_when_the_next_task_falls_due",
        }
    ),
    "claim_expire": frozenset(
        {
            "ends_so_many_at_a_time_the_longest_expired_first",
            "every_waiting_state_expires",
            "frees_its_key_and_its_place",
            "in_paused_queues_too",
            "its_waiters_learn",
            "tells_when_the_next_one_expires",
        }
    ),
    "claim_follow_ups": frozenset(
        {
            "a_claim_gives_while_it_goes_on",
            "a_claim_says_that_there_is_more_to_do",
            "a_deleted_queue_is_an_end_for_many",
            "a_dependent_that_is_not_told_yet_can_be_cancelled",
            "a_failure_reaches_everybody",
            "a_large_workflow_is_cancelled_and_replayed",
            "a_long_chain_falls_to_its_end",
            "a_new_dependent_need_not_wait_for_the_others_to_be_told",
            "a_wide_fan_in_runs_after_the_last",
            "a_wide_fan_out_is_unblocked_in_bounded_steps",
            "another_engine_on_the_store_goes_on_with_it",
            "everybody_is_told_of_the_same_end",
            "leaving_a_wide_fan_in_closes_every_edge",
            "the_end_outlives_the_task",
            "urgency_climbs_a_long_chain",
        }
    ),
    "claim_limits": frozenset(
        {
            "a_token_is_awaited_only_where_it_matters",
            "prefetch_passes_over_limited_queues",
        }
    ),
    "claim_partitions": frozenset(
        {
            "whatever_becomes_pending_stands_under_the_limit",
        }
    ),
    "claim_shares": frozenset(
        {
            "whatever_leaves_the_line_is_no_longer_counted",
        }
    ),
    "counts": frozenset(
        {
            "exact_after_every_move",
        }
    ),
    "counts_events": frozenset(
        {
            "deaths_by_reason",
            "kinds_add_up_after_every_move",
        }
    ),
    "delete_queue": frozenset(
        {
            "the_dead_of_a_deleted_queue_run_elsewhere",
        }
    ),
    "enqueue": frozenset(
        {
            "atomic_batch_is_nothing",
            "other_content_under_the_same_id_is_taken",
        }
    ),
    "enqueue_after": frozenset(
        {
            "every_rule_on_every_end_that_has_already_been",
            "what_an_earlier_item_was_refused_is_unknown",
        }
    ),
    "enqueue_clients": frozenset(
        {
            "later_tasks_and_those_that_wait_cost_too",
        }
    ),
    "enqueue_replace": frozenset(
        {
            "a_task_that_was_replayed_elsewhere_is_ranked_where_it_is",
            "in_a_batch_that_is_refused_nothing_is_replaced",
        }
    ),
    "events": frozenset(
        {
            "a_promotion_to_the_next_tier",
            "another_process_writes_too",
            "failures_retries_and_death",
            "it_ends_a_while_after_the_last_read",
            "limited_and_fair_queues_alike",
            "losses_releases_and_requests",
            "nothing_is_written_before_somebody_subscribes",
            "old_events_are_deleted_and_missed",
            "only_what_is_wanted_is_written",
            "pages_and_cursors",
            "reading_keeps_it_alive",
            "tasks_that_wait",
            "the_life_of_a_task",
            "workers_and_queues",
        }
    ),
    "inherit": frozenset(
        {
            "new_settings_keep_it",
            "through_the_whole_chain",
        }
    ),
    "search": frozenset(
        {
            "a_task_in_its_new_queue",
            "each_state_is_found_at_once",
        }
    ),
    "steps": frozenset(
        {
            "by_id",
            "ended_ones_are_kept_for_a_while",
            "newest_first_with_a_limit",
        }
    ),
    "subscribe": frozenset(
        {
            "new_work_notifies",
        }
    ),
    "unblock": frozenset(
        {
            "draining_queue_finishes_what_is_blocked_but_takes_no_more",
            "ends_of_dependents_notify",
            "ends_travel_along_the_chain",
            "paused_queue_unblocks_and_holds",
            "unblocked_tasks_are_never_refused",
            "unblocking_notifies",
        }
    ),
    "workflows": frozenset(
        {
            "a_task_that_joins_later_is_a_member",
            "members_in_several_queues",
        }
    ),
}
"""By verb or subject, the names of cases without their `test_`."""
