"""Numbers, a relay and a sink that says what it saw: of each number it is known if it was lost.

    sunshower simulate examples/simulated_relay.py --seeds 1000

The source is `numbers` of `sunshower.experiments`, so the checkers know how many there are, and
which of them each task has; the sink says the number of each. A word count cannot be looked at so
closely.
"""

from __future__ import annotations

from sunshower.experiments import relayed

topology = relayed(150, parallelism=2, name="simulated-relay", message_timeout_s=5, ackers=2)
