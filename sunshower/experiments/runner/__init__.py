"""Runs experiments and swarms of seeds on Ray or the simulator, and stores their files."""
