"""Random topologies under overload and outages in the simulator: what every seed has to keep."""
