"""What the API says about predictions and what came of them."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from tan_core.spec.study import Metric


class CalibrationItem(BaseModel):
    """One completed study. Accuracies are fractions, on the test split of its dataset."""

    study: str
    name: str
    dataset: str
    model: str
    metric: Metric = Metric.ACCURACY
    """What the accuracies are."""
    epsilon: float
    """As stated."""
    trial: int
    """That was promoted."""
    predicted: float
    low: float
    high: float
    reached: float
    error: float
    """``reached`` minus ``predicted``."""
    inside: bool
    """Whether ``reached`` is in [low, high]."""
    finished_at: datetime | None


class Calibration(BaseModel):
    """Over all completed studies that had a prediction, whatever part of them ``items`` shows."""

    level: float
    """Share of the intervals that are meant to hold."""
    studies: int
    inside: int
    coverage: float | None
    """Share of the intervals that held; None without any study."""
    mean_absolute_error: float | None
    """Of the predictions, as a fraction; None without any study."""
    items: list[CalibrationItem]
    """Newest first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "level": 0.9,
                    "studies": 1,
                    "inside": 1,
                    "coverage": 1.0,
                    "mean_absolute_error": 0.003,
                    "items": [
                        {
                            "study": "s-0123456789ab",
                            "name": "mnist-eps3",
                            "dataset": "mnist",
                            "model": "tanh-cnn",
                            "metric": "accuracy",
                            "epsilon": 2.98,
                            "trial": 7,
                            "predicted": 0.976,
                            "low": 0.969,
                            "high": 0.983,
                            "reached": 0.979,
                            "error": 0.003,
                            "inside": True,
                            "finished_at": "2026-11-21T19:30:00Z",
                        }
                    ],
                }
            ]
        }
    )
