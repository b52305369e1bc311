"""Random topologies under overload and outages in the simulator: what must hold for every seed."""
