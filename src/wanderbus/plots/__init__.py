"""Plots as SVG, without a library: self-contained files with few shapes and no external resource."""
