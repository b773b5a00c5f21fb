"""Simulated histories of the media relay (SPEC I)."""
