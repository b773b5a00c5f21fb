"""Simulated domains whose file changes while they run."""
