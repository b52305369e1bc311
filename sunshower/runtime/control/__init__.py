"""The master of a topology: lifecycle, placement, task transfer, crash reports, restarts."""
