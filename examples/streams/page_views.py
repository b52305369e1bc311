"""Counts page views by region, like Kafka Streams' PageViewRegionLambdaExample.

Each window lasts five minutes, and one ends every minute.
"""

from typing import NamedTuple

from sunshower import JsonLines, Records, Topology, count, sliding


class View(NamedTuple):
    user: str
    page: str
    at: float


class Profile(NamedTuple):
    user: str
    region: str


class RegionViews(NamedTuple):
    region: str | None
    window: float
    views: int


PROFILES = [Profile("alice", "asia"), Profile("bob", "africa")]
VIEWS = [View("alice" if n % 3 else "bob", f"/{n}", n * 20.0) for n in range(60)]

topology = Topology("page-views")
profiles = topology.spout("profiles", Records(PROFILES, type=Profile))
regions = profiles.group_by("user").table(broadcast=True)
views = topology.spout("views", Records(VIEWS, type=View))
located = views.join(regions, how="left", fields=["user", "page", "at", "region"])
window = sliding(seconds=300, every=60, field="at")
counts = located.group_by("region").window(window, count(), fields=RegionViews)
counts.shuffle().bolt("out", JsonLines("region_views.jsonl"))
