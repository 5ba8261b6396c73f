"""Errors of the library. Every message names the argument, its value and what is accepted.

TanError
├── ParameterError            an argument is outside its domain
├── UnreachableTargetError    no mechanism of the asked shape meets the (epsilon, delta) target
├── UnsupportedEventError     an accountant cannot price this event; it names the event
├── AccountantError           an accountant failed, ran out of time or memory, or two of them differ
│   ├── NoFiniteError         its bound is infinite
│   └── TooHardError          it was stopped: the question takes more time than it was given
├── AuditError                an example was not clipped by the norm of its own gradient
├── UnaccountedError          someone asked a simulation for a privacy guarantee
├── DatasetError              a dataset is missing, malformed or not what was registered
├── ModelError                a model mixes examples, keeps a state or gives no logits
└── PretrainedError           a checkpoint is missing, changed, malformed or of another model
"""


class TanError(Exception):
    """Base of every error that this package raises on purpose."""


class ParameterError(TanError, ValueError):
    """An argument is outside its domain.

    Args:
        message: what is wrong and what is accepted.
        field: dotted path of the field at fault, where there is one.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UnreachableTargetError(ParameterError):
    """No mechanism of the asked shape meets the privacy target."""


class UnsupportedEventError(TanError, ValueError):
    """An accountant cannot price this event."""


class AccountantError(TanError, RuntimeError):
    """An accountant failed, ran out of time or memory, or two accountants disagree."""

    @classmethod
    def of_library(cls, accountant: str, error: Exception) -> "AccountantError":
        """Where the library that computes it raised: errors of arithmetic begin with a number."""
        reason = error.args[-1] if error.args else type(error).__name__
        return cls(f"{accountant} failed: {reason}")


class NoFiniteError(AccountantError):
    """An accountant has no bound but infinity: there is too little noise for it."""


class TooHardError(AccountantError):
    """An accountant was stopped: the question takes more processor time than it was given."""


class AuditError(TanError, RuntimeError):
    """The engine did not clip an example by the norm of its own gradient, or a step changed what is not trained."""


class UnaccountedError(TanError, TypeError):
    """A simulation has no privacy guarantee, and was asked for one."""


class DatasetError(ParameterError):
    """A dataset is missing, malformed, or not the one that was registered."""


class ModelError(ParameterError):
    """A model has no gradient of each example, whatever it would be trained on."""


class PretrainedError(ParameterError):
    """A checkpoint to begin from is missing, changed, malformed, or of another model."""
