"""The master: lifecycle, placement, rebalances, restarts, crash reports (Storm: Nimbus)."""
