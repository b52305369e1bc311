"""Real outages under load: each module has `run(seconds)`, which returns what came of one."""
