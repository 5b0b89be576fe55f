"""Odd calls, damaged files, wild command lines, kills and threads: `python -m tests.torture --help`."""
