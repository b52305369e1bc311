"""Real servers for development and tests: Kafka and ZooKeeper, fetched, started and ended."""
