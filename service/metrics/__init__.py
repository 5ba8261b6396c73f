"""``/metrics``: what an operator watches, in the Prometheus text format."""
