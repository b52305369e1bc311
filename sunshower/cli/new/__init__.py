"""`sunshower new`: the command, and the template files of a project."""
