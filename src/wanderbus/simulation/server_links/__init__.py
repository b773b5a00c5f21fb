"""Simulated histories of the links between servers (SPEC J-12)."""
