"""Simulated histories of reliable UDP (SPEC F)."""
