"""Mutants of rows of docs/FIDELITY.md and docs/ORIGINS.md: the test that a row names finds each.

The rows were drawn with `Random(53).sample` from all rows of both pages that have a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.mutant import Defect, defect


@dataclass(frozen=True)
class RowMutant:
    """A defect in the mechanism of a row, and a test of the row, which fails with it."""

    page: str
    row: str  # how its first cell begins
    broken: str  # what the defect is, as the page says it
    test: str
    defect: Defect


ROWS = [
    RowMutant(
        "ORIGINS",
        "The consumer is not thread-safe",
        "a commit begins while another one is in progress",
        "tests/kafka/consuming/test_reading_parts.py"
        "::test_a_hanging_commit_blocks_nothing_and_the_next_commit_has_the_newest_offsets",
        defect("Committer.begin", "if self._underway is None and new:", "if new:"),
    ),
    RowMutant(
        "FIDELITY",
        "Start, case 1: no offset is stored",
        "`forceFromStart` begins at the end",
        "tests/kafka/consuming/test_reading_parts.py::test_where_a_partition_begins",
        defect("find_start", "earliest if forced else latest", "latest"),
    ),
    RowMutant(
        "FIDELITY",
        "`merge` of streams with the same number of fields",
        "only the first stream is read",
        "tests/trident/coordination/test_stream_operations.py"
        "::test_merged_streams_need_no_repartitioning",
        defect("BatchStream._merged", "self._of(...)", "self._of(*streams[0].sources)"),
    ),
    RowMutant(
        "FIDELITY",
        "DRPC: a server takes requests",
        "a row belongs to all requests of its batch",
        "tests/simulation/test_requests.py"
        "::test_each_of_many_callers_gets_the_rows_of_its_own_request",
        defect("AnswerTask.process", "batch.roots_of(index)", "batch.roots"),
    ),
    RowMutant(
        "ORIGINS",
        "A spout reads data from other systems",
        "the first record of each read is dropped",
        "tests/runtime/test_inline.py::test_words_are_counted_once_each_and_together",
        defect(
            "RecordsSource._take",
            "fresh.extend(islice(self._available(), room))",
            "fresh.extend([*islice(self._available(), room)][1:])",
        ),
    ),
    RowMutant(
        "FIDELITY",
        "`reduce` and `reduceByKey` with a function",
        "the function's result is not kept",
        "tests/topologies/operators/test_both_kinds.py::test_reduce_folds_records_with_a_function",
        defect("reduce.reduce", "return self.function(value, record)", "return value"),
    ),
    RowMutant(
        "ORIGINS",
        "After each emit the spout sends",
        "each start is the XOR 0",
        "tests/runtime/spouts/test_spout_task.py"
        "::test_start_is_the_xor_of_all_edges_that_were_sent",
        defect(
            "Reports.start",
            "self._to(task).starts.append(...)",
            "self._to(task).starts.append((roots[which], xors[which] ^ xors[which]))",
        ),
    ),
    RowMutant(
        "FIDELITY",
        "`max.spout.pending` is checked once per loop",
        "the limit holds once per call of `next_tuple`, as in Storm",
        "tests/fidelity/test_spout_side.py"
        "::test_limit_of_pending_trees_holds_for_every_task_and_every_emit",
        defect(
            "NextTupleSource.draw",
            "while self._emissions and (room > 0 or not self._is_tracked(self._emissions[0])):",
            "while self._emissions: ...",
        ),
    ),
    RowMutant(
        "FIDELITY",
        "A FailedException fails the batch when the rest",
        "an error does not end the attempt",
        "tests/trident/coordination/test_stage_task.py"
        "::test_an_error_ends_the_attempt_and_the_rest_of_it_fails_at_once",
        defect("StageBolt.execute", "self._end(...)", "pass"),
    ),
    RowMutant(
        "ORIGINS",
        "Not zero until the timeout",
        "no deadline is ever due",
        "tests/fidelity/test_bolt_side.py::test_tuple_that_is_never_acked_fails_at_the_timeout",
        defect("Pending.expired", "if now < self.next_deadline_s:", "if True:"),
    ),
    RowMutant(
        "FIDELITY",
        "Repartitionings: shuffle, partitionBy",
        "batchGlobal chooses the first task for every batch",
        "tests/trident/coordination/test_stream_operations.py"
        "::test_rows_go_where_the_repartitioning_says",
        defect("ByBatch.split", "txid % self._targets", "0"),
    ),
    RowMutant(
        "ORIGINS",
        "A bolt emits and acks: its input edge XOR",
        "an ack is the input edge alone, as the article says",
        "tests/runtime/bolts/test_manual_bolt.py"
        "::test_ack_reports_the_input_edge_and_an_edge_for_each_target",
        defect("ManualBoltTask._carry_out", "edge ^ t.made", "edge"),
    ),
    RowMutant(
        "FIDELITY",
        "Ack or fail for a tree that is complete",
        "reports on closed trees are applied",
        "tests/fidelity/test_acker_states.py::test_report_on_a_complete_tree_has_no_verdict",
        defect(
            "_Table._renew",
            "keep = (tags & (_GENERATION | OPEN)) == (wanted | OPEN)",
            "keep = (tags & _GENERATION) == wanted",
        ),
    ),
    RowMutant(
        "FIDELITY",
        "Init without target tasks",
        "a start with the XOR 0 waits for an ack",
        "tests/fidelity/test_acker_states.py::test_message_without_subscribers_is_acked_at_once",
        defect("_Table.start", "if np.count_nonzero(xors) == len(xors):", "if True:"),
    ),
    RowMutant(
        "FIDELITY",
        "Kill: spouts stop, and after `wait_secs`",
        "a second kill does not begin a new wait",
        "tests/runtime/control/test_lifecycle.py"
        "::test_kill_ends_when_its_wait_is_over_and_a_second_one_begins_a_new_wait",
        defect(
            "Master._on_kill",
            "self._wait(event.wait_s, now)",
            "if not self._since_s: self._wait(event.wait_s, now)",
        ),
    ),
    RowMutant(
        "FIDELITY",
        "`deactivate` stops new batches",
        "new batches are begun while it settles",
        "tests/trident/coordination/test_master_batch_coordinator.py"
        "::test_a_deactivated_group_commits_what_it_has_begun_and_no_more",
        defect("MasterBatchCoordinator.settle", "self._settles = True", "self._settles = False"),
    ),
    RowMutant(
        "ORIGINS",
        "RangeAssignor, the default",
        "the first threads get one more, and the next ones begin too early",
        "tests/kafka/partitions/test_assignment.py"
        "::test_range_counts_stream_threads_and_not_members",
        defect(
            "by_range_of_threads", "start = each * place + min(place, more)", "start = each * place"
        ),
    ),
    RowMutant(
        "FIDELITY",
        "Kryo serialises the values between workers",
        "any class may be in a record",
        "tests/topologies/test_field_types.py"
        "::test_a_type_that_cannot_be_sent_is_refused_with_its_component_and_field",
        defect("_may_travel", "issubclass(kind, _PLAIN)", "True"),
    ),
    RowMutant(
        "FIDELITY",
        "At most once: offsets are committed",
        "messages are emitted before their offsets are committed",
        "tests/kafka/consuming/test_spout.py"
        "::test_failed_messages_are_not_repeated_without_that_guarantee",
        defect(
            "KafkaSpout._records",
            "if self._commits_first and batch.messages and not reader.commit_now():",
            "if False:",
        ),
    ),
    RowMutant(
        "ORIGINS",
        "Consumers beyond the partitions are idle",
        "nothing says that a member is idle",
        "tests/kafka/partitions/test_zookeeper_group.py"
        "::test_members_beyond_the_number_of_partitions_are_idle_and_logged",
        defect(
            "ZooKeeperGroup._assigned",
            "for thread in (thread for thread, some in mine.items() if not some):",
            "if False:",
        ),
    ),
    RowMutant(
        "FIDELITY",
        "Users must find a good `topology.max.spout.pending`",
        "the limit never shrinks",
        "tests/runtime/tracking/test_congestion_control.py"
        "::test_queue_is_short_and_the_server_busy_at_any_rate_and_network_latency",
        defect(
            "CongestionControl._shrink",
            "self.limit = max(min(least, self.limit), int(self.limit * factor))",
            "pass",
        ),
    ),
    RowMutant(
        "FIDELITY",
        "Init contains the XOR of all edges",
        "acks before the start are dropped",
        "tests/fidelity/test_bolt_side.py::test_order_of_reports_does_not_matter",
        defect("AckerTask.apply", "report.acks", "report.acks if self.ledger.open_count() else []"),
    ),
    RowMutant(
        "FIDELITY",
        "Committed every `stateUpdateIntervalMs`",
        "nothing is committed when it is deactivated",
        "tests/kafka/partitions/test_spout_parts.py"
        "::test_a_commit_without_an_answer_blocks_neither_the_client_nor_the_last_commit",
        defect("KafkaSpout.deactivate", "self._reader.send_commit()", "pass"),
    ),
    RowMutant(
        "FIDELITY",
        "`each` with a Function appends fields",
        "`filter` drops nothing",
        "tests/topologies/operators/test_both_kinds.py::test_each_operator_does_what_python_does",
        defect(
            "RecordOperators.filter",
            "return self._with('filter', lambda: steps.Filter(function), self.schema, function)",
            "return self",
        ),
    ),
]
