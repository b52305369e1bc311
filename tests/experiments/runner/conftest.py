"""Fixtures of the command line tests, for the tests of the runner; charts are blank."""

from tests.cli.conftest import _forget_modules, printed_by, start, write
from tests.experiments.blank_charts import blank_charts, drawn

__all__ = ["_forget_modules", "blank_charts", "drawn", "printed_by", "start", "write"]
