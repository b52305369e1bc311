"""Joins impressions of ads with clicks, like Kafka Streams' StreamToStreamJoinIntegrationTest."""

from typing import NamedTuple

from sunshower import JsonLines, Records, Topology


class Impression(NamedTuple):
    ad: str
    at: float


class Click(NamedTuple):
    ad: str
    clicked_at: float


class Shown(NamedTuple):
    ad: str
    at: float | None
    clicked_at: float | None  # None: not clicked within five seconds


IMPRESSIONS = [Impression("car", 0.0), Impression("newspaper", 1.0), Impression("gadget", 2.0)]
CLICKS = [Click("newspaper", 3.0), Click("gadget", 4.0), Click("newspaper", 5.0)]

topology = Topology("ads")
impressions = topology.spout("impressions", Records(IMPRESSIONS, type=Impression))
clicks = topology.spout("clicks", Records(CLICKS, type=Click))
shown = impressions.join(
    clicks, "ad", within=5, field="at", other_field="clicked_at", how="outer", fields=Shown
)
shown.shuffle().bolt("out", JsonLines("ads.jsonl"))
