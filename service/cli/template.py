"""What ``tan-cli init`` writes: the first study, equal to ``examples/digits.yaml``."""

STUDY = """\
# A first study: the 1,797 handwritten digits of scikit-learn. No file, no network.
name: digits-eps3
privacy:
  epsilon: 3.0
  delta: 1.0e-5
dataset: digits
model:
  name: mlp
  hidden: [64]
search:
  accounting: declared_unaccounted   # the search reads private data and is not charged: shown beside ε
  trials: 12
  rungs: [8, 32]                     # simulate at B/32, the better ones at B/8; σ shrinks alike, the steps stay
  # sampler: tpe                     # who proposes trials: tpe, cmaes, gp or random
  # budget: 1.0                      # examples of search and finals, in private runs
  # warm_start: auto                 # tried first: the best of earlier studies; none, or [STUDY IDS]
  seed: 0
  space:
    learning_rate: {low: 0.125, high: 4.0, log: true}
    ema_decay: {choices: [0.9, 0.98]}
train:
  batch_size: 256
  steps: 300
  clip_norm: 0.5
  workers: 2
promotion: automatic
"""
