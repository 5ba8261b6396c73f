"""What other versions of the service answer: more is left out, less is absent, wrong is refused."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.cli import views
from service.cli.connect import document
from service.cli.output import show
from service.client import Client, ClientError
from tests.unit.service.cli.recorded import STUDY, SUMMARY

OLDER: dict[str, Any] = json.loads((Path(__file__).parent / "older_answers.json").read_text())
"""By path, as the service of 22 November 2026, 08:41 UTC, gave them."""


def client_of(answers: dict[str, Any]) -> Client:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=answers[request.url.path])

    return Client("http://x", transport=httpx.MockTransport(answer))


class TestOlder:
    def test_the_recording_lacks_what_came_later(self) -> None:
        (summary,) = OLDER["/studies"]["items"]
        assert not {"target_epsilon", "predicted_accuracy"} & set(summary)
        assert set(SUMMARY) > set(summary)

    def test_a_list_is_read_and_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        with client_of(OLDER) as client:
            (study,) = client.list_studies().items
        assert (study.name, study.target_epsilon) == ("digits-eps3", None)
        show(views.studies([document(study)]))
        assert study.id in capsys.readouterr().out

    def test_a_study_is_read_and_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        path = next(path for path in OLDER if path.startswith("/studies/"))
        with client_of(OLDER) as client:
            study = client.get_study(path.removeprefix("/studies/"))
        assert study.run is not None
        assert study.run.evaluation is None
        show(views.study(document(study)))
        assert "predicted" in capsys.readouterr().out


def without(document: Any, *path: str) -> Any:
    """A copy that lacks one field."""
    copied = json.loads(json.dumps(document))
    inner = copied
    for part in path[:-1]:
        inner = inner[part]
    del inner[path[-1]]
    return copied


def test_what_may_be_none_is_absent() -> None:
    lacking = without(STUDY, "privacy", "charged_steps")
    with client_of({f"/studies/{STUDY['id']}": lacking}) as client:
        assert client.get_study(STUDY["id"]).privacy.charged_steps is None


@pytest.mark.parametrize("name", ["epsilon", "delta", "search_note"])
def test_what_must_be_there_is_not_made_up(name: str) -> None:
    lacking = without(STUDY, "privacy", name)
    with (
        client_of({f"/studies/{STUDY['id']}": lacking}) as client,
        pytest.raises(ClientError, match="as new as this program"),
    ):
        client.get_study(STUDY["id"])


@pytest.mark.parametrize("answer", [{}, [], None, "hello", {"items": None}])
def test_what_is_no_answer_of_ours_is_refused(answer: Any) -> None:
    with client_of({"/studies": answer}) as client, pytest.raises(ClientError, match="StudyPage"):
        client.list_studies()


def test_a_field_that_is_lacking_beside_one_that_is_wrong_is_refused() -> None:
    wrong = without({**STUDY, "version": "seven"}, "run")
    with (
        client_of({f"/studies/{STUDY['id']}": wrong}) as client,
        pytest.raises(ClientError, match="StudyView"),
    ):
        client.get_study(STUDY["id"])


def test_what_a_newer_service_says_besides_is_left_out() -> None:
    newer = {**STUDY, "mood": "good"}
    with client_of({f"/studies/{STUDY['id']}": newer}) as client:
        assert not hasattr(client.get_study(STUDY["id"]), "mood")
