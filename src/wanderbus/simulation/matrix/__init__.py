"""The mobility matrix: each change of place with each transport, path and activity, in one simulated domain (U-09)."""
