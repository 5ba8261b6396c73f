"""Studies: what was asked for, where it stands, what happened."""
