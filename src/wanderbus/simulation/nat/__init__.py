"""Simulated histories behind NATs and firewalls (SPEC I-08)."""
