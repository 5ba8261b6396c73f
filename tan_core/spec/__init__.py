"""Specs: what a user may ask for, and what is wrong with it when it cannot be had."""

from tan_core.mechanism import Accountant
from tan_core.spec.models import MODEL_TYPES, ModelSpec
from tan_core.spec.problems import FieldProblem, field_problems
from tan_core.spec.space import Choices, Range, Scalar
from tan_core.spec.study import (
    BudgetSpec,
    PrivacySpec,
    SearchAccounting,
    SearchSpec,
    StudySpec,
)
from tan_core.spec.train import Optimizer, TrainerConfig, TrainSpec
from tan_core.spec.yaml import load_study, parse_yaml, parse_yaml_value

__all__ = [
    "MODEL_TYPES",
    "Accountant",
    "BudgetSpec",
    "Choices",
    "FieldProblem",
    "ModelSpec",
    "Optimizer",
    "PrivacySpec",
    "Range",
    "Scalar",
    "SearchAccounting",
    "SearchSpec",
    "StudySpec",
    "TrainSpec",
    "TrainerConfig",
    "field_problems",
    "load_study",
    "parse_yaml",
    "parse_yaml_value",
]
