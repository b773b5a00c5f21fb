"""Attacks by kind; :mod:`hostile.table` lists them."""
