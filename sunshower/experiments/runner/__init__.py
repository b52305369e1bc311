"""Runs experiments and swarms of seeds on Ray or the simulator, and keeps their files."""
