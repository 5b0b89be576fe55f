"""What the command line prints, as tables of 80 columns."""
