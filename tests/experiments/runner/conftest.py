"""Fixtures of the command line tests, for the tests of the runner."""

from tests.cli.conftest import _forget_modules, printed_by, start, write

__all__ = ["_forget_modules", "printed_by", "start", "write"]
