"""The privacy ledger: what is reserved, charged and left of every budget."""
