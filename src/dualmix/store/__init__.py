"""A run's folder, found by its key: names and bytes, on this machine or behind an address.

It knows nothing of learning or settings, and imports only the package's root.
"""
