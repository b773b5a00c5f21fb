"""Simulated servers that are restored from an earlier copy of their disk."""
