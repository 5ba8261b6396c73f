"""``tan-cli``: a client of the API. It owns no rule: the control plane decides, this shows."""
