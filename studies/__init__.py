"""Developers' studies behind the choices of the package, such as the calibration of its defaults.

Run them in a clone of the repository, e.g. `python -m studies.calibrate`. They may import every
room of the package; no room imports them, and they are not in the wheel.
"""
