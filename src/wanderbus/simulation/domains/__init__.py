"""Simulated domains of several servers (SPEC J, K)."""
