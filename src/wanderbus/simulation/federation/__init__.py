"""Simulated domains that share events."""
