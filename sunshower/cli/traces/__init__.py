"""`sunshower trace`: recorded tuple trees, in the terminal and for OpenTelemetry."""
