"""A store as tables, figures and one page: it reads, and never trains.

It imports paper and the rooms above it.
"""
