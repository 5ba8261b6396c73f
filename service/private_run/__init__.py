"""The private run of a study over its steps."""
