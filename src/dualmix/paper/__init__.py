"""What the paper claims, as data: its numbers, its grids, Proposition 1.

It imports sweeps and the rooms above it.
"""
