"""Writes records to Kafka: idempotent producer, transactions, the Kafka bolts."""
