"""Answers in the shape of the API's contract, and a real HTTP server that gives them."""

import contextlib
import copy
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

Json = dict[str, Any]

WEIGHTS = b"weights!"


def budget_fit(*, fits: bool) -> Json:
    """The ``budget`` of a plan on a ledger of epsilon 10."""
    composed = 9.4 if fits else 10.4
    whole = {
        "tenant": None, "epsilon": 10.0, "committed_epsilon": 8.0, "composed_epsilon": composed,
        "fits": fits,
    }  # fmt: skip
    return {
        "dataset": "digits",
        "scope_id": "dataset:digits",
        "delta": 1e-5,
        "accountant": "pld",
        "entry": {"seq": 7, "hash": "ab" * 32},
        "fits": fits,
        "study_epsilon": 2.94,
        "limits": [whole],
        "refusal": None if fits else "over the budget of dataset:digits",
        "missing_epsilon": None if fits else 0.4,
        "fitting_epsilon": None if fits else 2.5,
        "fitting_steps": None,
        "note": None,
    }


PLAN: Json = {
    "reference": {
        "num_examples": 1295,
        "sampling_rate": 0.19768,
        "expected_batch_size": 256,
        "noise_multiplier": 4.883,
        "steps": 300,
        "clip_norm": 0.5,
    },
    "privacy": {
        "epsilon": 2.9401,
        "delta": 1e-5,
        "accountant": "pld",
        "neighboring_relation": "add_or_remove_one",
        "epsilon_by_accountant": {"pld": 2.9401, "rdp": 3.2003, "prv": None},
        "epsilon_tan": 3.3304,
        "signal_to_noise": 0.4958,
        "overcharge": 1.0271,
        "epsilon_reserved": 2.9998,
        "target_epsilon": 3.0,
    },
    "reservation": {"steps": 312, "slack_steps": 12, "segment_steps": 6},
    "simulations": [
        {
            "scale_factor": 8,
            "expected_batch_size": 32,
            "sampling_rate": 0.02471,
            "noise_multiplier": 0.610375,
            "steps": 300,
            "trials": 12.0,
            "learning_rate_factor": 1.0,
            "private": False,
        }
    ],
    "cost": {
        "private_run_examples": 76800,
        "search_examples": 115200,
        "full_search_examples": 921600,
        "saving": 8.0,
    },
    "warnings": ["prv was not asked"],
}
TRIAL: Json = {
    "number": 1,
    "state": "completed",
    "params": {"learning_rate": 0.512345, "ema_decay": 0.9},
    "scores": [],
    "repeats": [],
    "value": 0.9301,
    "source": None,
    "reason": None,
}
TRIALS: list[Json] = [
    {
        **TRIAL,
        "scores": [
            {
                "rung": rung,
                "seed": 0,
                "expected_batch_size": batch,
                "noise_multiplier": 0.61,
                "steps": 300,
                "views": 1,
                "accuracy": accuracy,
                "released": None,
                "train_loss": None,
                "clipped_fraction": clipped,
                "seconds": 1.5,
                "curve": [],
            }
            for rung, batch, accuracy, clipped in ((0, 8.0, 0.91, 0.5), (1, 32.0, 0.9301, 0.0625))
        ],
        "attempt": 1,
        "started_at": "2026-01-02T03:04:05Z",
        "updated_at": "2026-01-02T03:04:09Z",
        "finished_at": "2026-01-02T03:04:09Z",
    },
    {
        **TRIAL,
        "number": 0,
        "state": "diverged",
        "params": {"learning_rate": 4.0, "momentum": 0.9},
        "value": None,
        "reason": "a weight was not finite",
        "attempt": 1,
        "started_at": "2026-01-02T03:04:05Z",
        "updated_at": "2026-01-02T03:04:06Z",
        "finished_at": "2026-01-02T03:04:06Z",
    },
]
PROGRESS: Json = {
    "phase": "completed",
    "trials_total": 2,
    "trials_finished": 2,
    "trials_running": 0,
    "trials_diverged": 1,
    "trials_pruned": 0,
    "trials_failed": 0,
    "repeats_finished": 2,
    "best_accuracy": 0.9301,
    "step": 300,
    "steps": 300,
    "steps_per_second": 41.5,
    "attempt": 1,
    "features": None,
}
STUDY: Json = {
    "id": "s-0123456789ab",
    "tenant": "local",
    "name": "digits-eps3",
    "tags": [],
    "note": None,
    "archived": False,
    "version": 0,
    "state": "completed",
    "reason": None,
    "paused": False,
    "search_ended_early": False,
    "priority": 0,
    "queue_position": None,
    "spec": {
        "name": "digits-eps3",
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [64]},
        "search": {
            "accounting": "declared_unaccounted",
            "trials": 2,
            "space": {
                "learning_rate": {"low": 0.125, "high": 4.0, "log": True},
                "ema_decay": {"choices": [0.9, 0.98]},
            },
        },
        "train": {"batch_size": 256, "steps": 300, "learning_rate": 1.0, "ema_decay": 0.0},
    },
    "plan": PLAN,
    "progress": PROGRESS,
    "best_trial": TRIAL,
    "approval": None,
    "prediction": {
        "accuracy": 0.9217,
        "low": 0.9031,
        "high": 0.9383,
        "level": 0.9,
        "expected_batch_size": 256.0,
        "trial": 1,
        "seeds": 2,
        "is_fresh": True,
        "method": "line",
        "slope": -0.004,
        "caution": None,
        "guessing": 0.1,
        "ahead": 0.004,
        "shift": -0.003,
        "shift_studies": 2,
        "reached": 0.9248,
        "error": 0.0031,
        "inside": True,
    },
    "promotion": {
        "trial": 1,
        "by": "search",
        "approved_by": None,
        "reason": "trial 1: predicted 92.17% [90.31%, 93.83%] at batch 256; 0.70 points above trial 4",
        "standings": [
            {
                "trial": 1,
                "accuracy": 0.9217,
                "low": 0.9031,
                "high": 0.9383,
                "seeds": 2,
                "is_fresh": True,
            },
            {
                "trial": 4,
                "accuracy": 0.9147,
                "low": 0.8962,
                "high": 0.9315,
                "seeds": 1,
                "is_fresh": False,
            },
        ],
    },
    "run": {
        "state": "succeeded",
        "reason": None,
        "step": 300,
        "steps": 300,
        "steps_per_second": 41.5,
        "attempt": 1,
        "trial": 1,
        "began_from_trial": None,
        "learning_rate": None,
        "test_accuracy": 0.9248,
        "num_test": 359,
        "evaluation": None,
    },
    "privacy": {
        "epsilon": 2.9401,
        "delta": 1e-5,
        "accountant": "pld",
        "neighboring_relation": "add_or_remove_one",
        "search_accounting": "declared_unaccounted",
        "search_note": "search on private data NOT accounted",
        "epsilon_reserved": 2.9998,
        "charged_steps": 300,
        "reserved_steps": 312,
        "ledger_entry": {"scope": "digits", "seq": 54, "hash": "ab" * 32},
    },
    "error": None,
    "created_at": "2026-01-02T03:04:05.678000Z",
    "started_at": "2026-01-02T03:04:06Z",
    "finished_at": "2026-01-02T03:05:06Z",
}
SUMMARY: Json = {
    "id": STUDY["id"],
    "tenant": "local",
    "name": STUDY["name"],
    "tags": [],
    "archived": False,
    "state": "completed",
    "reason": None,
    "paused": False,
    "priority": 0,
    "queue_position": None,
    "dataset": "digits",
    "model": "mlp",
    "search_accounting": "declared_unaccounted",
    "search_note": "search on private data NOT accounted",
    "epsilon": 2.9401,
    "target_epsilon": 3.0,
    "delta": 1e-5,
    "accountant": "pld",
    "neighboring_relation": "add_or_remove_one",
    "metric": "accuracy",
    "best_accuracy": 0.9301,
    "predicted_accuracy": 0.9276,
    "predicted_low": 0.9172,
    "predicted_high": 0.938,
    "test_accuracy": 0.9248,
    "created_at": STUDY["created_at"],
    "started_at": STUDY["started_at"],
    "finished_at": STUDY["finished_at"],
}
CALIBRATION: Json = {
    "level": 0.9,
    "studies": 20,
    "inside": 17,
    "coverage": 0.85,
    "mean_absolute_error": 0.0042,
    "items": [
        {
            "study": STUDY["id"],
            "name": "digits-eps3",
            "dataset": "digits",
            "model": "mlp",
            "metric": "accuracy",
            "epsilon": 2.9401,
            "trial": 1,
            "predicted": 0.9217,
            "low": 0.9031,
            "high": 0.9383,
            "reached": 0.9248,
            "error": 0.0031,
            "inside": True,
            "finished_at": "2026-01-02T03:14:05Z",
        }
    ],
}
ATTEMPTS: list[Json] = [
    {
        "run": "search",
        "attempt": 1,
        "state": "lost",
        "reason": "the cluster lost the job",
        "paused": False,
        "ranks": None,
        "exit_code": 137,
        "last_lines": "Killed",
        "created_at": STUDY["created_at"],
        "submitted_at": STUDY["created_at"],
        "heartbeat_at": None,
        "finished_at": STUDY["finished_at"],
    }
]
DATASET: Json = {
    "name": "digits",
    "source": "digits",
    "path": None,
    "label": "label",
    "features": None,
    "content_sha256": "cd" * 32,
    "num_classes": 10,
    "shape": [1, 8, 8],
    "num_train": 1295,
    "num_train_records": 1295,
    "num_validation": 143,
    "num_test": 359,
    "split_seed": 0,
    "unit": "record",
    "records_per_unit": 1,
    "group": None,
    "public": False,
    "approval": "automatic",
    "allowed_modes": ["public_proxy", "declared_unaccounted"],
    "waiver": "the scikit-learn authors: published data",
    "overlap": None,
    "neighboring_relation": "add_or_remove_one",
    "admission": "pld",
    "budget": {"epsilon": 100.0, "delta": 1e-3},
    "created_at": "2026-01-01T00:00:00Z",
}


def progress(phase: str, **changes: Any) -> Json:
    blank = {
        **PROGRESS,
        "trials_finished": 0,
        "repeats_finished": 0,
        "trials_diverged": 0,
        "best_accuracy": None,
    }
    return {**blank, "phase": phase, "step": None, "steps": None, "attempt": 1, **changes}


def state_event(state: str, **changes: Any) -> Json:
    shown = progress(state, **changes)
    return {"kind": "state", "state": state, "reason": None, "progress": shown}


def story() -> list[Json]:
    """The events of a study that completes."""
    searched = {"trials_finished": 2, "trials_diverged": 1, "best_accuracy": 0.9301}
    done = {**searched, "repeats_finished": 2}
    diverged = {**TRIAL, "number": 0, "state": "diverged", "value": None, "reason": "loss is NaN"}
    step = {"step": 150, "steps": 300, "steps_per_second": 50.0}
    events = [
        state_event("queued", attempt=None),
        state_event("simulating"),
        {
            "kind": "attempt",
            "run": "r",
            "run_kind": "search",
            "attempt": 1,
            "state": "live",
            "reason": None,
        },
        {
            "kind": "trial",
            "trial": diverged,
            "progress": progress("simulating", trials_finished=1, trials_diverged=1),
        },
        {"kind": "trial", "trial": TRIAL, "progress": progress("simulating", **searched)},
        {"kind": "trial", "trial": TRIAL, "progress": progress("simulating", **done)},
        state_event("training", **done, step=0, steps=300),
        {"kind": "step", **step, "progress": progress("training", **done, **step)},
        state_event("completed", **done, step=300, steps=300),
    ]
    return [
        {"seq": number, "at": "2026-01-02T03:04:05+00:00", **event}
        for number, event in enumerate(events, start=1)
    ]


class RecordedServer:
    """Remembers what was asked; ``study``, ``events`` and ``answers`` say what it replies."""

    def __init__(self) -> None:
        self.url = ""
        self.study = copy.deepcopy(STUDY)
        self.summaries = [copy.deepcopy(SUMMARY)]
        self.calibration = copy.deepcopy(CALIBRATION)
        self.datasets = [copy.deepcopy(DATASET)]
        self.events = story()
        self.log = "epoch 1\nepoch 2\n"
        self.cut_after: int | None = None
        """The first stream ends after this event, as if the line had broken."""
        self.answers: dict[str, tuple[int, Json]] = {}
        """Fixed answers by ``METHOD path``."""
        self.requests: list[tuple[str, Json | None, dict[str, str]]] = []
        self.queries: list[dict[str, str]] = []
        self.app = FastAPI()
        self.app.add_api_route(
            "/{path:path}",
            self._answer,
            methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            response_model=None,
        )

    def asked(self, what: str) -> list[tuple[Json | None, dict[str, str]]]:
        """Bodies and headers of the requests ``METHOD path``."""
        return [(body, headers) for asked, body, headers in self.requests if asked == what]

    async def _answer(self, path: str, request: Request) -> Response:
        raw = await request.body()
        what = f"{request.method} /{path}"
        headers = dict(request.headers)
        self.queries.append(dict(request.query_params))
        self.requests.append((what, _object(raw), headers))
        if what in self.answers:
            status, document = self.answers[what]
            return JSONResponse(_problem(status, document) if status >= 400 else document, status)
        known = {
            "POST /plans": (200, PLAN),
            "POST /studies": (201, {**self.study, "state": "queued", "run": None}),
            "GET /studies": (200, self._filtered(request)),
            f"GET /studies/{STUDY['id']}": (200, self.study),
            f"POST /studies/{STUDY['id']}/cancel": (202, {**self.study, "state": "cancelled"}),
            f"POST /studies/{STUDY['id']}/pause": (202, {**self.study, "paused": True}),
            f"POST /studies/{STUDY['id']}/finish": (
                202,
                {**self.study, "search_ended_early": True},
            ),
            f"POST /studies/{STUDY['id']}/resume": (202, {**self.study, "queue_position": 2}),
            f"GET /studies/{STUDY['id']}/attempts": (200, {"items": ATTEMPTS}),
            f"GET /studies/{STUDY['id']}/trials": (200, {"items": TRIALS, "next_cursor": None}),
            f"PATCH /studies/{STUDY['id']}": (200, {**self.study, **(_object(raw) or {})}),
            f"POST /studies/{STUDY['id']}/promote": (202, {**self.study, "state": "training"}),
            "GET /calibration": (200, self.calibration),
            "GET /datasets": (200, {"items": self.datasets}),
            "GET /datasets/digits": (200, DATASET),
            "POST /datasets": (201, DATASET),
            "PUT /datasets/digits/approval": (200, {**DATASET, "approval": "required"}),
        }
        if what == f"GET /studies/{STUDY['id']}/events":
            return self._stream(int(headers.get("last-event-id", "0")))
        if what == f"GET /studies/{STUDY['id']}/logs":
            return Response(self.log, media_type="text/plain")
        if what == f"GET /studies/{STUDY['id']}/model":
            tag = f'"{hashlib.sha256(WEIGHTS).hexdigest()}"'
            return Response(WEIGHTS, media_type="application/octet-stream", headers={"ETag": tag})
        status, document = known.get(what, (404, _problem(404, {"detail": f"no {path}"})))
        return Response(status_code=status) if status == 204 else JSONResponse(document, status)

    def _filtered(self, request: Request) -> Json:
        asked = request.query_params
        name, begins = asked.get("name"), asked.get("id_begins", "")
        found = [
            item
            for item in self.summaries
            if name in (None, item["name"]) and item["id"].startswith(begins)
        ]
        items = found[: int(asked.get("limit", 50))]
        return {"items": items, "next_cursor": None, "total": len(found)}

    def _stream(self, after: int) -> Response:
        left = [event for event in self.events if event["seq"] > after]
        if not left:
            return Response(status_code=204)
        if self.cut_after is not None and after == 0:
            left = [event for event in left if event["seq"] <= self.cut_after]
        return StreamingResponse(iter(map(sse, left)), media_type="text/event-stream")


def _object(raw: bytes) -> Json | None:
    return json.loads(raw) if raw else None


def _problem(status: int, fields: Json) -> Json:
    return {"type": "about:blank", "title": "No", "status": status, "detail": "", **fields}


def sse(event: Json) -> str:
    """An event on the wire, with a keep-alive comment before it."""
    return (
        f": keep-alive\n\nid: {event['seq']}\nevent: {event['kind']}\ndata: {json.dumps(event)}\n\n"
    )


@contextlib.contextmanager
def serving(recorded: RecordedServer) -> Iterator[RecordedServer]:
    """Serve on a free port in a thread."""
    config = uvicorn.Config(
        recorded.app, port=0, log_config=None, log_level="error", lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.002)
    port = server.servers[0].sockets[0].getsockname()[1]
    recorded.url = f"http://127.0.0.1:{port}"
    try:
        yield recorded
    finally:
        server.should_exit = True  # it looks every tenth of a second; nobody has to wait for that
