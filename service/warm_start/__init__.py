"""Warm start: a search tries first what was best in earlier searches of the same model on the same data.

What is taken over is what simulations found out, and so as private as the data that they read. It is
therefore taken only from studies whose search read the very dataset that the new search reads: under
``public_proxy`` that is the public dataset, whatever private data the source went on to train on. A search
that is charged learns from none that was not, though both read the same data. Of a
source only the scores of its search decide, never its private run, its test accuracy, or which trial a
person chose, who may have seen those. A field that its trials did not vary keeps the value that its spec
fixed: a person's choice, as every spec is. Such are the points of ``search.first``, which come before all of these.
"""
