"""Odd calls, damaged files, wild words, kills and threads: `python -m tests.torture --help`."""
