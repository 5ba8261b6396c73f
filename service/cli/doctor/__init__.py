"""``tan-cli doctor``: what the product stands on here, and what to do where it does not."""
