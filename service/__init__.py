"""The control plane: API, orchestrator, ledger, dashboard and command line."""
