"""The dashboard: server-rendered pages over the API's own views."""
