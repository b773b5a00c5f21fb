"""Ratios against peers, measured in one run: ``./do bench NAME``."""
