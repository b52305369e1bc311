"""What the project has promised itself: the bound of each figure."""

from __future__ import annotations

from benchmarks.figures import Target

TARGETS = (
    Target("ledger/in-order/dict", at_least=6),
    Target("ledger/sunshower/memory", at_most=16),
    Target("simulation/sunshower/pack-10-faults", at_least=2_000),
    Target("simulation/sunshower/isolate-10-faults", at_least=2_000),
    Target("word_count/pack-rows/bytewax", at_least=2),
    Target("word_count/pack-rows/loop", at_least=0.35),
    Target("word_count/pack-rows/untracked", at_least=0.7),
    Target("word_count/pack-classes/two-processes", at_least=0.5),
    Target("word_count/pack-classes/bytewax", at_least=1.5),
    Target("word_count/pack-columns/loop", at_least=1.5),
    Target("word_count/operators-columns/loop", at_least=2.5),
    Target("const_null/isolate-rows-1024/three-actors", at_least=0.9),
    Target("history/sample-64/none", at_least=0.85),
    Target("history/sample-1/none", at_least=0.85),
    Target("kafka/at-least-once/loop", at_least=0.5),
    Target("kafka/at-least-once/never-committed", at_least=0.95),
    Target("kafka_words/pack-rows/faust", at_least=3),
    Target("kafka_words/pack-rows/quix", at_least=3),
    Target("kafka_words/pack-columns/quix", at_least=3),
    Target("spark/ray/bare", at_most=1.3),
    Target("spark/local/bare", at_most=1.3),
    Target("spark/sunshower/memory-growth-local", at_most=16),
    Target("spark/sunshower/memory-growth-ray", at_most=16),
    Target("trident/pack-opaque/at-least-once", at_least=0.5),
    Target("trident/pack-transactional/at-least-once", at_least=0.5),
    Target("trident/pack-opaque/spark", at_least=3),
    Target("trident/sunshower/empty-opaque-wall", at_most=10),
    Target("trident/sunshower/empty-opaque-cpu", at_most=10),
    Target("trident/sunshower/empty-transactional-wall", at_most=10),
    Target("trident/sunshower/empty-transactional-cpu", at_most=10),
    Target("trident/sunshower/empty-opaque-one-worker-wall", at_most=10),
    Target("trident/sunshower/memory-growth", at_most=16),
    Target("trident/kafka-opaque/at-least-once", at_least=0.5),
    Target("trident/kafka-opaque/quix", at_least=3),
    Target("idle/sunshower/isolate-6-tasks", at_most=0.03),
)
