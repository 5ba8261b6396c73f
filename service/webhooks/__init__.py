"""Messages to addresses of the operator's when a study ends or waits for a person."""
