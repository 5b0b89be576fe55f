"""What a run is told: settings composed from preset, file and flags, their key, and the migration
of stored ones.

It imports methods, data and the rooms above them, and never torch.
"""
