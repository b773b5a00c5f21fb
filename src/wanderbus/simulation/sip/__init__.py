"""Simulated histories of the SIP layer (SPEC C, D)."""
