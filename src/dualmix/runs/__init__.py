"""One run, from a configuration to filed scores and back: build, train, measure, track.

It imports config, store and the rooms above them.
"""
