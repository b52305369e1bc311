"""Numbers, a relay and a sink that reports each number, so that every lost number is detected.

    sunshower simulate examples/simulated_relay.py --seeds 1000

The source is `numbers` of `sunshower.experiments`, so the checkers know all numbers, and which task
emits each of them. A word count cannot be checked so precisely.
"""

from __future__ import annotations

from sunshower.experiments import relayed

topology = relayed(150, parallelism=2, name="simulated-relay", message_timeout_s=5, ackers=2)
