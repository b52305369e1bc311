"""Kafka in and out: who owns which partition, how far it is settled, and where that is kept."""
