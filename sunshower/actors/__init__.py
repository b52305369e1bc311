"""The Ray shells: they carry the runtime's orders out and decide nothing about semantics."""
