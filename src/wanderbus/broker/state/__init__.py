"""The broker's state: a fold over the records of its log (DESIGN 5.1)."""
