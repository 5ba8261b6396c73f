"""The whole product on one machine: PostgreSQL, Ray, API and orchestrator under one supervisor."""
