"""`sunshower new`: the command, and the files of the project that it makes."""
