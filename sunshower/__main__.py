"""`python -m sunshower`: the command line, for where its script is not on the path."""

from sunshower.cli import main

if __name__ == "__main__":
    main()
