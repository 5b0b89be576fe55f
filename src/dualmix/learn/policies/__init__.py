"""Which slots to overwrite and which to rehearse: one file an idea, each a callable without state."""
