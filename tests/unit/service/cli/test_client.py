import httpx
import pytest

from service.cli.client import ApiClient, parse_events
from service.cli.errors import ApiError, CliError, Exit
from service.cli.settings import ClientSettings


class TestParseEvents:
    def test_ids_kinds_and_data_are_read_and_comments_passed_over(self) -> None:
        lines = [": hello", "", "id: 7", "event: step", 'data: {"a":', "data: 1}", "", "id: 8", ""]
        [event] = parse_events(iter(lines))
        assert (event.id, event.kind, event.data) == ("7", "step", {"a": 1})

    def test_an_event_that_the_line_cut_short_is_not_delivered(self) -> None:
        assert list(parse_events(iter(["id: 1", 'data: {"a": 1}']))) == []

    def test_data_that_is_not_json_is_refused(self) -> None:
        with pytest.raises(CliError, match="not JSON"):
            list(parse_events(iter(["data: {", ""])))


class TestApiError:
    @pytest.mark.parametrize(
        ("status", "kind", "code"),
        [
            (422, "about:blank", Exit.BAD_INPUT),
            (400, "about:blank", Exit.BAD_INPUT),
            (409, "/problems/over-budget", Exit.OVER_BUDGET),
            (409, "about:blank", Exit.FAILED),
            (404, "about:blank", Exit.FAILED),
            (401, "about:blank", Exit.FAILED),
            (500, "/problems/over-budget", Exit.FAILED),
        ],
    )
    def test_the_status_and_type_decide_the_exit_code(
        self, status: int, kind: str, code: Exit
    ) -> None:
        assert ApiError(status, {"type": kind, "detail": "no"}).exit_code == code

    def test_an_answer_that_is_no_problem_still_names_the_status(self) -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(502, text="<html>"))
        with (
            ApiClient(ClientSettings(), transport=transport) as client,
            pytest.raises(ApiError, match="502 Bad Gateway"),
        ):
            client.datasets()


class TestPages:
    def test_every_page_is_read_and_no_more_than_asked(self) -> None:
        asked: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.query.decode())
            start = int(request.url.params.get("cursor", "0"))
            size = int(request.url.params["limit"])
            items = [{"id": str(n)} for n in range(start, start + size)]
            return httpx.Response(200, json={"items": items, "next_cursor": str(start + size)})

        with ApiClient(ClientSettings(), transport=httpx.MockTransport(answer)) as client:
            found = list(client.studies(states=["failed", "queued"], limit=130))

        assert [item["id"] for item in found] == [str(n) for n in range(130)]
        assert asked == [
            "state=failed&state=queued&limit=100",
            "state=failed&state=queued&cursor=100&limit=30",
        ]

    def test_names_are_escaped_in_paths(self) -> None:
        paths: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            paths.append(request.url.raw_path.decode())
            return httpx.Response(200, json={})

        with ApiClient(ClientSettings(), transport=httpx.MockTransport(answer)) as client:
            client.dataset("../studies")
        assert paths == ["/datasets/..%2Fstudies"]
