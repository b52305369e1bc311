"""Mutants of the way between workers: packets, lanes, lives, grants, and what a death has cost."""

from __future__ import annotations

from tests.mutants.mutant import mutant, slip

ROADS = [
    mutant(
        "the sequence of packets is not checked",
        "A packet that comes twice is processed twice: x ^ x is a false ack, and user code "
        "sees its tuples again.",
        slip("PacketReceiver.answer", "address.seq <= last", "False"),
    ),
    mutant(
        "a sender does not learn that its peer has a new life",
        "Its packets are meant for the life that is over, and are refused as stale for ever.",
        slip("PeerLink.peer_is", "self.peer_incarnation = incarnation", "pass"),
    ),
    mutant(
        "the sweep is skipped",
        "What a dead process held, or had half sent, is nobody's business: its trees wait for"
        " their deadline.",
        slip("LossDetector.sweep", "self._wired.spouts.values()", "()"),
    ),
    mutant(
        "only dead bolts are swept, no acker shards",
        "A dead acker shard takes all its XORs along, and nobody fails the trees that it followed.",
        slip("LossDetector._sweep", "if bolts or residues:", "if bolts:"),
        on="apart",
        seen=38,
    ),
    mutant(
        "a lost frame is not failed",
        "A packet that did not arrive is forgotten, with the records in it.",
        slip("LossDetector.lost", "lost.frames", "()"),
    ),
    mutant(
        "a lost report is not failed",
        "Reports of a packet that did not arrive are forgotten: the XOR of their trees never "
        "gets to zero.",
        slip("LossDetector.lost", "lost.reports", "()"),
    ),
    mutant(
        "a lost start is not failed",
        "Of a report that was lost only acks and failures are failed; its starts were told to"
        " nobody.",
        slip("LossDetector.lost", "report.starts", "()"),
    ),
    mutant(
        "a lost failure is not said again",
        "A bolt's failure that did not arrive is forgotten, while acks and starts are taken "
        "care of.",
        slip("LossDetector.lost", "report.fails", "()"),
        seen=29,
    ),
    mutant(
        "verdicts of a failed call are not said again",
        "The acker has closed a tree and its spout never hears of it.",
        slip("PeerLink.answered", "lost.verdicts.items()", "()"),
    ),
    mutant(
        "grants of a failed call are not said again",
        "What was processed is never granted: the window of the sender stays closed for ever.",
        slip(
            "PeerLink.answered",
            "self.content.grants = lost.grants + self.content.grants",
            "pass",
        ),
    ),
    mutant(
        "grants for a former life are kept",
        "They count frames of a life that is over: the new one takes frames for processed that "
        "nobody has seen, and does not fail them when they are lost.",
        slip("PeerLink.peer_is", "self.content.grants = []", "pass"),
        on="ghosts",
        seen=77,
    ),
    mutant(
        "packets for a former life are taken",
        "The same with grants that were on their way to it.",
        slip(
            "PacketReceiver.answer",
            "(address.receiver, address.receiver_incarnation) != (self._worker, self._incarnation)",
            "False",
        ),
        on="ghosts",
        seen=216,
    ),
    mutant(
        "packets of a former life are taken",
        "What a dead process had sent is processed, by the receiver and behind it: its frames are "
        "granted to its successor, which has not sent any of that number.",
        slip(
            "PacketReceiver.answer",
            "address.sender_incarnation < known",
            "False",
        ),
        slip(
            "Worker.receive",
            "packet.life != self._peer_links[packet.sender].peer_incarnation",
            "False",
        ),
        on="ghosts",
        seen=86,
    ),
    mutant(
        "a packet that was refused counts as delivered",
        "The answer of a receiver that could not read a packet, or found it late, is taken "
        "for a yes.",
        slip(
            "PeerLink.answered",
            "answer is Answer.ACCEPTED",
            "answer in (Answer.ACCEPTED, Answer.REFUSED)",
        ),
        seen=55,
    ),
    mutant(
        "the checksum is not looked at",
        "A flipped bit is read as it is: any number may be another one.",
        slip(
            "read_address",
            "crc32(memoryview(data)[_HEADER.size :], version) != checksum",
            "False",
        ),
    ),
    mutant(
        "a peer's new life is not noticed",
        "What was on its way to the life that is over is not failed, and the sweep never starts.",
        slip("Worker.peers", "if not is_new:", "if False:"),
    ),
]
