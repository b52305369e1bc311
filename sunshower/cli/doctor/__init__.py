"""`sunshower doctor`: checks the installed packages and the machine."""
