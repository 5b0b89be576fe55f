"""Many runs: grids, processes on one machine, a Ray cluster, tuning.

It imports runs and the rooms above it, and never trains by itself.
"""
