"""What became of each message: when it was first emitted and when it was first completed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sunshower.runtime.history import What
from sunshower.runtime.ids import I64

if TYPE_CHECKING:
    from sunshower.faults.history import F64, History


@dataclass(frozen=True)
class Accounts:
    """One row for each message that was ever emitted; every array has shape (n,)."""

    messages: I64  # ascending; see history.message_keys
    emitted_s: F64  # from the start of the run
    completed_s: F64  # infinite when it never was
    emits: I64  # how often

    @classmethod
    def of(cls, history: History) -> Accounts:
        """The accounts of a whole run."""
        emitted, completed = history.rows(What.EMITTED), history.rows(What.COMPLETED)
        messages, firsts, emits = np.unique(emitted.messages, return_index=True, return_counts=True)
        done, when = np.unique(completed.messages, return_index=True)
        completed_s = np.full(len(messages), np.inf)
        known = np.isin(done, messages)
        completed_s[np.searchsorted(messages, done[known])] = completed.at_s[when[known]]
        return cls(messages, emitted.at_s[firsts], completed_s, emits)

    @property
    def open(self) -> I64:
        """Those that were never completed."""
        return self.messages[np.isinf(self.completed_s)]

    def touched(self, from_s: float, to_s: float, lost: I64, but: I64) -> F64:
        """When those were completed, after `from_s`, that were open at any time from then to
        `to_s`, or are among `lost`, and not among `but`; infinite for what never was."""
        open_then = (self.emitted_s <= to_s) | np.isin(self.messages, lost)
        open_then &= ~np.isin(self.messages, but)
        return self.completed_s[open_then & (self.completed_s > from_s)]
