"""Real outages under load: `run(seconds)` of each module returns the figures of one outage."""
