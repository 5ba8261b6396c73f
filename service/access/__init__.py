"""Who may do what: the door that every request passes, what routes ask for, tokens, the audit."""
