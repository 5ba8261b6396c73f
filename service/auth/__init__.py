"""Who may speak: the API token of users, the run tokens of workers."""
