"""The first emit, the first completion and the number of emits of each message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sunshower.runtime.events.event_log import What
from sunshower.runtime.tracking.ids import I64

if TYPE_CHECKING:
    from sunshower.experiments.evidence.event_history import F64, History


@dataclass(frozen=True)
class Accounts:
    """One row for each message that was ever emitted; every array has shape (n,)."""

    messages: I64  # ascending; see event_history.message_keys
    emitted_s: F64  # from the start of the run
    completed_s: F64  # infinite: never
    emits: I64  # number of emits

    @classmethod
    def of(cls, history: History) -> Accounts:
        """Compute the accounts of a history."""
        emitted, completed = history.rows(What.EMITTED), history.rows(What.COMPLETED)
        messages, firsts, emits = np.unique(emitted.messages, return_index=True, return_counts=True)
        done, when = np.unique(completed.messages, return_index=True)
        completed_s = np.full(len(messages), np.inf)
        known = np.isin(done, messages)
        completed_s[np.searchsorted(messages, done[known])] = completed.at_s[when[known]]
        return cls(messages, emitted.at_s[firsts], completed_s, emits)

    @property
    def open(self) -> I64:
        """The messages that were never completed."""
        return self.messages[np.isinf(self.completed_s)]

    def touched(self, from_s: float, to_s: float, lost: I64, but: I64) -> F64:
        """Return when messages were completed that were open between `from_s` and `to_s`, or are in
        `lost`, and are not in `but`; infinite for those that never were."""
        open_then = (self.emitted_s <= to_s) | np.isin(self.messages, lost)
        open_then &= ~np.isin(self.messages, but)
        return self.completed_s[open_then & (self.completed_s > from_s)]
