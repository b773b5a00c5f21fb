"""Simulated histories of the whole system."""
