"""What leaves the service: its signatures and public keys, and a mark of every ledger that left."""
