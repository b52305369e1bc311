"""Decodes packets, and drops those that name workers, tasks, streams or slots that do not exist."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sunshower.errors import CorruptPacket
from sunshower.runtime.plan import ACKER, Plan
from sunshower.runtime.tracking.ids import slots_of
from sunshower.runtime.transport.frames import Notes
from sunshower.runtime.transport.packets import Packet, read_content


class PacketReader:
    """Reads the packets of one worker, after PacketReceiver has checked their headers."""

    def __init__(self, plan: Plan, worker: int) -> None:
        self._dropped: Counter[str] = Counter()  # reason → packets, since the last notices
        self._streams = plan.streams
        here = {task.id for task in plan.tasks_on(worker)}
        self._slots = plan.graph.config.spout_slots
        self._peers = {*plan.workers} - {worker}
        self._ackers = here & {task.id for task in plan.tasks_of(ACKER)}
        self._spouts = here & {task.id for task in plan.spouts}
        self._routes = {}  # stream → the tasks that send it, and those here that read it
        for stream in plan.streams:
            readers = [reader.id for reader, _ in plan.subscriptions(stream)]
            targets = {task.id for reader in readers for task in plan.tasks_of(reader)}
            sources = {task.id for task in plan.tasks_of(stream.component)}
            self._routes[stream.index] = sources, here & targets

    def read(self, data: bytes, notes: Notes | None = None) -> Packet | None:
        """Decode a packet. None: it is corrupt in spite of its checksum, or of another topology;
        then nothing of it is applied, and its tuples time out."""
        try:
            packet = read_content(data, self._streams, notes)
            self._check(packet)
        except CorruptPacket as error:
            self._dropped[str(error)] += 1
            return None
        return packet

    def notices(self) -> list[str]:
        """Return log lines about dropped packets since the last call."""
        dropped, self._dropped = self._dropped, Counter()
        return [f"packets dropped: {count}; {why}" for why, count in dropped.most_common(3)]

    def _check(self, packet: Packet) -> None:
        is_known = packet.sender in self._peers
        is_known &= self._ackers >= packet.reports.keys()
        is_known &= self._spouts >= packet.verdicts.keys()
        roots = [packet.failed, packet.postponed]  # a ledger grows to the highest slot of its roots
        for frame in packet.frames:
            roots.append(frame.batch.roots)
            sources, targets = self._routes[frame.batch.stream]
            is_known &= frame.batch.source in sources and frame.target in targets
        for report in packet.reports.values():
            failed = np.array([root for root, _ in report.fails], np.uint64)
            roots += [*report.roots(), *report.asks, failed]
        is_known &= all(slots_of(some).max() < self._slots for some in roots if len(some))
        if not is_known:
            raise CorruptPacket(f"a packet of worker {packet.sender} is not of this topology")
