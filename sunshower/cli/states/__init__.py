"""The command `sunshower state`, and the files that it writes and reads: see `state_files`."""
