"""For tests of code that is built on this library; nothing in it runs where studies do.

``conformance``  tests of a model of yours, to inherit: does the engine bound what each example adds?
``oracle``       a clipped sum by its definition, one backward pass of plain autograd per example
``tiny``         a model and images that a processor trains on in no time
``strategies``   mechanisms, studies and batches as Hypothesis draws them (``pip install hypothesis``)

Each is imported by its own name: the first three bring torch, the last one Hypothesis.
"""
