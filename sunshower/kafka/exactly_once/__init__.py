"""Each Kafka record counted once: batch spouts, deduplication, offsets stored with results."""
