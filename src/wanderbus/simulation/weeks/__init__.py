"""Simulated histories of weeks: lifetimes, restrictions, queue limits."""
