"""The study that ``tan-cli init`` writes: commented, and by itself equal to ``examples/digits.yaml``."""

from dataclasses import dataclass

ACCOUNTING = {
    "declared_unaccounted": "the search reads private data and is not charged: shown beside ε",
    "accounted": "each trial is a private run, and ε is of the search and the run together",
    "public_proxy": "simulations and their scores read public data alone: the search costs no ε",
    "no_search": "nothing is searched: train and model hold the hyper-parameters",
}
"""What can be run today, and what it means."""
OPTIONS = {"mlp": "  hidden: [64]\n"}
"""Beside the name of a model."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a study is written from; the defaults are those of a first study on ``digits``."""

    name: str = "digits-eps3"
    dataset: str = "digits"
    model: str = "mlp"
    epsilon: float = 3.0
    delta: float = 1e-5
    accounting: str = "declared_unaccounted"
    search_dataset: str | None = None
    """The public dataset of ``public_proxy``."""
    trials: int = 12
    rungs: str = "[8, 32]"
    batch_size: str = "256"
    steps: str = "300"
    clip_norm: float = 0.5
    promotion: str = "automatic"

    @property
    def about(self) -> str:
        """The comment at the head of the file."""
        if self.dataset == "digits":
            return "# A first study: the 1,797 handwritten digits of scikit-learn. No file, no network.\n"
        return f"# A study on {self.dataset}. What each key means: tan-cli schema.\n"


def study_text(answers: Answers) -> str:
    """The study as YAML."""
    a = answers
    return f"""\
{a.about}name: {a.name}
privacy:
  epsilon: {a.epsilon!r}
  delta: {_scientific(a.delta)}
dataset: {a.dataset}
model:
  name: {a.model}
{OPTIONS.get(a.model, "")}search:
  {f"accounting: {a.accounting}":<35}# {ACCOUNTING[a.accounting]}
{_GIVEN if a.accounting == "no_search" else _searched(a)}\
  batch_size: {a.batch_size}
  steps: {a.steps}
  clip_norm: {a.clip_norm!r}
  workers: 2
  # precision: float32               # of the passes through the model, or bfloat16: ε is the same
promotion: {a.promotion}
"""


def _searched(a: Answers) -> str:
    """What the search does, up to what is fixed."""
    if a.accounting == "accounted":
        return _CHARGED.format(trials=a.trials)
    proxy = "" if a.search_dataset is None else f"  dataset: {a.search_dataset}\n"
    begins = "" if a.search_dataset is None else _OF_PROXY
    rungs = (
        "simulate at B/32, the better ones at B/8; σ shrinks alike, the steps stay"
        if a.rungs != "auto"
        else "simulated batches, smallest first, or a list such as [8, 32]"
    )
    return f"""\
{proxy}  trials: {a.trials}
  {f"rungs: {a.rungs}":<35}# {rungs}
  # sampler: tpe                     # who proposes trials: tpe, cmaes, gp, random or grid
  # budget: 1.0                      # examples of search and finals, in private runs
  # warm_start: auto                 # tried first: the best of earlier studies; none, or [STUDY IDS]
  # first: [{{learning_rate: 1.0}}]    # tried before those: points of the space; the rest of each is chosen
  seed: 0
  space:
    learning_rate: {{low: 0.125, high: 4.0, log: true}}
    ema_decay: {{choices: [0.9, 0.98]}}
train:
{begins}"""


_OF_PROXY = """\
  # begin_from: trial                # the private run goes on from what its trial learnt of the public data
"""
_CHARGED = """\
  trials: {trials:<26} # each costs about what the private run costs: ask few questions
  rungs: auto                        # one batch size: auto, the smallest whose trials keep enough noise, or [B]
  # warm_start: auto                 # tried first: the best of earlier studies that were accounted too
  seed: 0
  space:
    learning_rate: {{low: 0.125, high: 4.0, log: true}}
train:
  ema_decay: 0.9
  # begin_from: auto                 # later trials and the private run go on from the best one's weights; scratch: all begin anew
"""
_GIVEN = """\
train:
  learning_rate: 1.0
  ema_decay: 0.9
"""
"""What is not searched is written down."""


def _scientific(value: float) -> str:
    """Such that every reader of YAML takes it for a number.

    Example:
        >>> _scientific(1e-5), _scientific(2.5e-7), _scientific(0.01)
        ('1.0e-5', '2.5e-7', '0.01')
    """
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{int(exponent)}"


STUDY = study_text(Answers())
"""The first study."""
