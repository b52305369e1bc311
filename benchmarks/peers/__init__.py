"""Peers that run in processes of environments of their own, or on the Java virtual machine."""
