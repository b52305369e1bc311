"""Runs the command line with `python -m sunshower`, if its script is not on the path."""

from sunshower.cli import main

if __name__ == "__main__":
    main()
