"""Subscriptions that begin in the past: they read the log, then continue live (SPEC T-05)."""
