"""Mutants of the transport between workers: packets, links, lives, grants, and losses."""

from __future__ import annotations

from tests.mutants.mutant import defect, mutant

TRANSPORT = [
    mutant(
        "the sequence of packets is not checked",
        "A repeated packet is processed twice: x ^ x is a false ack, and user code gets its tuples "
        "again.",
        defect("PacketReceiver.answer", "address.seq <= last", "False"),
    ),
    mutant(
        "a sender does not learn that its peer has a new life",
        "Its packets are addressed to the earlier life, and are refused as stale for ever.",
        defect("PeerLink.peer_is", "self.peer_life = incarnation", "pass"),
    ),
    mutant(
        "the sweep is skipped",
        "Tuples that a dead process held or had half sent are not failed: their trees wait for "
        "their deadline.",
        defect("LossDetector.sweep", "self._wired.spouts.values()", "()"),
    ),
    mutant(
        "only dead bolts are swept, no acker shards",
        "The XORs of a dead acker shard are lost, and the trees that it tracked are not failed.",
        defect("LossDetector._sweep", "if bolts or residues:", "if bolts:"),
        on="isolated",
        seen=38,
    ),
    mutant(
        "a lost frame is not failed",
        "The records of a packet that did not arrive are not failed.",
        defect("LossDetector.lost", "lost.frames", "()"),
    ),
    mutant(
        "a lost report is not failed",
        "Reports of a packet that did not arrive are forgotten: the XOR of their trees never "
        "becomes zero.",
        defect("LossDetector.lost", "lost.reports", "()"),
    ),
    mutant(
        "a lost start is not failed",
        "Of a lost report only acks and failures are failed; its starts are not.",
        defect("LossDetector.lost", "report.starts", "()"),
    ),
    mutant(
        "a lost failure is not reported again",
        "A bolt's failure that did not arrive is forgotten; lost acks and starts are handled.",
        defect("LossDetector.lost", "report.fails", "()"),
        seen=29,
    ),
    mutant(
        "verdicts of a failed call are not sent again",
        "The acker has closed a tree, and its spout never gets the verdict.",
        defect("PeerLink.answered", "lost.verdicts.items()", "()"),
    ),
    mutant(
        "grants of a failed call are not sent again",
        "Processed records are never granted: the window of the sender stays closed for ever.",
        defect(
            "PeerLink.answered",
            "self.content.grants = lost.grants + self.content.grants",
            "pass",
        ),
    ),
    mutant(
        "grants for an earlier life are kept",
        "They count frames of the earlier life: the new one takes frames for processed that were "
        "not, and does not fail them when they are lost.",
        defect("PeerLink.peer_is", "self.content.grants = []", "pass"),
        on="delays",
        seen=77,
    ),
    mutant(
        "packets for an earlier life are accepted",
        "The same with grants that were in transit to that life.",
        defect(
            "PacketReceiver.answer",
            "(address.receiver, address.receiver_incarnation) != (self._worker, self._incarnation)",
            "False",
        ),
        on="delays",
        seen=216,
    ),
    mutant(
        "packets of an earlier life are accepted",
        "Packets of a dead process are processed, by the receiver and behind it: their frames are "
        "granted to its successor, which has not sent frames with these numbers.",
        defect(
            "PacketReceiver.answer",
            "address.sender_incarnation < known",
            "False",
        ),
        defect(
            "Worker.receive",
            "if packet.life != link.peer_life:\n    return",
            "pass",
        ),
        on="delays",
        seen=86,
    ),
    mutant(
        "a refused packet counts as delivered",
        "The answer of a receiver that could not read a packet, or found it stale, counts as an "
        "acceptance.",
        defect(
            "PeerLink.answered",
            "answer is Answer.ACCEPTED",
            "answer in (Answer.ACCEPTED, Answer.REFUSED)",
        ),
        seen=55,
    ),
    mutant(
        "the checksum is not checked",
        "A flipped bit is not detected: any number may be read as another one.",
        defect(
            "read_address",
            "crc32(memoryview(data)[_HEADER.size :], version) != checksum",
            "False",
        ),
    ),
    mutant(
        "a peer's new life is not noticed",
        "Tuples in transit to the earlier life are not failed, and the sweep never starts.",
        defect("Worker.peers", "if not is_new:", "if False:"),
    ),
]
