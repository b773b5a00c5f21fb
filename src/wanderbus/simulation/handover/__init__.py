"""Simulated domains whose sessions move between the servers."""
