"""Is the process alive, can it serve."""
