"""Who asks: API tokens and their scopes, sessions of the dashboard, the run tokens of workers."""
