"""The reconciler: looks at what is wanted and what is there, and takes one step towards the first.

Level-triggered: nothing is remembered between ticks but what PostgreSQL and Ray say, and every action
may be repeated, so the process can be killed at any point.
"""
