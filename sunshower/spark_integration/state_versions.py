"""The versions of a step's state, as the task that commits its batches opens them."""

from __future__ import annotations

from sunshower.spark_integration.sessions.spark_port import StepState
from sunshower.spark_integration.tables.table_folder import TableFolder
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.states.counted import CountedIn


class StateVersions:
    """The folder of a state, and the note of its last write in the store of the batches. A folder
    that is behind the note was emptied, or is not the one of the former task.

    Raises like TableFolder, and StateMismatch for a folder that is behind the note.
    """

    def __init__(self, state: StepState, topology: str, counted: CountedIn) -> None:
        self._written = counted.last_write(str(state.folder), 0)  # before the folder is read
        try:
            batches, current = counted.incarnation(), counted.current()
            self.folder = TableFolder(state.folder, topology, batches, current, state.columns)
            self._written.check(self.folder.last_attempt(), f"the state in {state.folder}")
        except BaseException:
            self.close()
            raise

    def before(self, txid: int) -> str | None:
        """The folder of the state that batch `txid` begins with, in its commit phase; None if the
        state is empty. Raises like `TableFolder.publish`."""
        found = self.folder.version_before(txid)
        return None if found is None else str(found)

    def note(self, attempt: Attempt) -> None:
        """Note that the state of an attempt is staged. Raises StoreUnreachable."""
        self._written.note(attempt._replace(epoch=0))  # the folder does not store it

    def close(self) -> None:
        """Close the store."""
        self._written.close()
