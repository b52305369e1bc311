"""Peers that run in separate Python environments, or on the Java virtual machine."""
