"""Subscriptions to patterns of compound events: their admission, and their detections (SPEC T-07, S-06)."""
