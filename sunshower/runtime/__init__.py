"""The algorithms that run a topology, without Ray, a clock, sockets or random numbers.

Read `plan` (tasks, workers, subscriptions), `tasks/wiring` (what a worker consists of) and `worker`
(the order of its work). Then follow a tuple: `tasks/spouts` emits it, `transport` carries it,
`tasks/bolts` processes it, `tracking` knows when its tree is complete. `control` decides for all
workers: it is the master. Of these four, each imports only those below it: tracking, transport,
tasks, control. `events` has what can be observed. `master_process` and `worker_process`
are the parts of processes that Ray (`sunshower/actors`) and the simulator share; `inline` needs
neither.
"""
