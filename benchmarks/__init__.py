"""Developers' measurements: how long a step takes and how much memory a process needs.

Run `python -m benchmarks` in a clone of the repository. It may import every room of the package;
no room imports it, and it is not in the wheel.
"""
