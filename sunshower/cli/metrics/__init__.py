"""`sunshower metrics`: the statistics of a cluster's topologies for Prometheus."""
