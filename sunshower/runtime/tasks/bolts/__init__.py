"""Bolt tasks.

Read `bolt_task` (from prepare() to the report on each input), then the levels: `automatic_bolt`
(functions, process(), `@batch`), `manual_bolt` (execute(tuple, out)), `keyed_bolt`,
`operator_bolt`. `anchoring` anchors single emits, `dead_letters` describes records that failed.
`slow_path` has what is rare (pauses, quarantine, trials, calls in progress, injected faults): a
batch of an ordinary task does not pass it.
"""
