"""The privacy self-test: what private runs do here, measured from outside against what is priced.

Every trainer is made by the function that makes those of private runs, with their randomness, and is
driven by their loop. What a step did is read from the weights alone, so a fault anywhere between the
draw and the update shows. ``python -m worker.selftest`` prints a JSON line for each finding;
``tan-cli selftest privacy`` shows them.
"""
