"""Tracks tuple trees: completes them (acker_task.py), and fails lost ones (loss_detector.py)."""
