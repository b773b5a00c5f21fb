"""Restrictions on generating notifications (SPEC H)."""
