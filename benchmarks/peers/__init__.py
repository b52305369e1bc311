"""Peers that read Kafka, and do not install beside our pins: in an environment of their own."""
