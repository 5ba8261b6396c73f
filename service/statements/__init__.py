"""Privacy statements: built from the ledger, priced twice, signed, verifiable by anyone."""
