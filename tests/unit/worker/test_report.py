"""The client of the control plane against a real HTTP server on this machine."""

import gzip
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import SecretStr

from service.logs.text import last_words
from service.orchestrator.decide import OTHER_VERSION
from service.settings import Settings
from tan_core import log_records
from tan_core.wire import (
    HEARTBEAT_PAUSE,
    WIRE_VERSION,
    Checkpoint,
    FeaturesMade,
    SearchAssignment,
    TrialRecord,
    TrialState,
)
from worker import report
from worker.driver import EXIT_FAILED, drive
from worker.report import (
    EXIT_FENCED,
    EXIT_REFUSED,
    ControlPlane,
    FencedError,
    Heartbeats,
    Patience,
    RefusedError,
    TrialReporter,
    UnreachableError,
    VersionError,
)
from worker.settings import WorkerSettings

IMPATIENT = Patience(deadline_seconds=5.0, first_pause_seconds=0.01, longest_pause_seconds=0.05)


class Plane(ThreadingHTTPServer):
    """Answers from a script: status codes and ``pages`` to give first, then 200 with ``reply``, or 204."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.pages: list[bytes] = []
        self.silences = 0
        """Requests to leave without an answer."""
        self.reply: object = {}
        self.headers: dict[str, str] = {}
        self.seen: list[tuple[str, str, dict[str, object] | None]] = []
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Plane

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.seen.append((self.command, self.path, body))
        self.server.tokens.add(self.headers.get("Authorization"))
        if self.server.silences:
            self.server.silences -= 1
            time.sleep(8.0)
            return
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        said = self.server.reply if status == 200 else {"title": "no", "detail": "attempt 2 lives"}
        content = json.dumps(said).encode()
        if self.server.pages:
            content = self.server.pages.pop(0)
        elif status == 200 and (self.command == "PUT" or self.path.endswith(("/end", "/finish"))):
            status, content = 204, b""
        kind = "application/problem+json" if status >= 400 else "application/json"
        self.send_response(status)
        if not any(name == "Content-Type" for name in self.server.headers):
            self.send_header("Content-Type", kind)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = answer  # noqa: N815 - names of http.server

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def plane() -> Iterator[Plane]:
    server = Plane()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def control(plane: Plane) -> Iterator[ControlPlane]:
    client = ControlPlane(settings(plane.url), patience=IMPATIENT)
    yield client
    client.close()


def settings(url: str) -> WorkerSettings:
    return WorkerSettings(api_url=url, run_id="s1-search", fence=1, run_token=SecretStr("secret"))


def drive_at(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a driver of this process find the control plane, and write its log as long as the test runs."""
    monkeypatch.setattr(log_records, "_process", {})
    monkeypatch.setattr(logging.root, "handlers", logging.root.handlers[:])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    for name, value in {
        "TAN_API_URL": plane.url,
        "TAN_RUN_ID": "s1-search",
        "TAN_FENCE": "1",
        "TAN_RUN_TOKEN": "secret",
    }.items():
        monkeypatch.setenv(name, value)


def soon(claim: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether the claim comes true while waiting for it."""
    deadline = time.monotonic() + seconds
    while not claim():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def trial(number: int, state: TrialState = TrialState.RUNNING) -> TrialRecord:
    return TrialRecord(number=number, state=state, params={"learning_rate": 1.0})


def test_a_request_carries_the_fence_and_the_run_token(plane: Plane, control: ControlPlane) -> None:
    control.report_trial(trial(3))
    method, path, body = plane.seen[0]
    assert (method, path) == ("PUT", "/worker/runs/s1-search/trials/3")
    assert body is not None
    assert body["fence"] == 1
    assert plane.tokens == {"Bearer secret"}


def test_who_waits_for_an_answer_gives_a_sign_of_life_each_time(plane: Plane) -> None:
    plane.statuses = [503, 502, 429]
    beats: list[int] = []
    client = ControlPlane(
        settings(plane.url), patience=IMPATIENT, waiting=lambda: beats.append(len(plane.seen))
    )
    client.report_trial(trial(3))
    client.close()
    assert beats == [1, 2, 3]


def test_the_token_shows_in_no_representation_of_the_settings() -> None:
    assert "secret" not in repr(settings("http://127.0.0.1:1"))


@pytest.mark.parametrize("version", [WIRE_VERSION - 1, WIRE_VERSION + 1, None])
def test_messages_of_another_version_are_refused_before_they_are_read(
    plane: Plane, control: ControlPlane, version: int | None
) -> None:
    plane.reply = {"kind": "search", "wire_version": version, "of_the_other_version": 1}

    with pytest.raises(VersionError, match=f"version {WIRE_VERSION} .* version {version}: install"):
        control.assignment()


def test_a_driver_of_another_version_says_so_as_the_end_of_its_attempt(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.reply = {"kind": "search", "wire_version": WIRE_VERSION + 1}
    drive_at(plane, monkeypatch)

    code = drive(SearchAssignment, lambda *_: pytest.fail("it began"))

    assert code == EXIT_FAILED
    method, path, body = plane.seen[-1]
    assert (method, path) == ("POST", "/worker/runs/s1-search/finish")
    assert body is not None
    assert (body["outcome"], body["retryable"]) == ("failed", True)
    assert "install the same tan-search on both" in str(body["reason"])
    assert OTHER_VERSION[0] in str(body["reason"])


def test_it_says_so_in_its_log_where_the_other_version_does_not_understand_its_report(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plane.reply = {"kind": "search", "wire_version": WIRE_VERSION + 1}
    plane.statuses = [200, 422]
    drive_at(plane, monkeypatch)

    code = drive(SearchAssignment, lambda *_: pytest.fail("it began"))

    assert code == EXIT_FAILED
    assert OTHER_VERSION[0] in (last_words(capsys.readouterr().err) or "")


def test_server_errors_are_retried_until_the_answer(plane: Plane, control: ControlPlane) -> None:
    plane.statuses = [500, 503, 502]
    control.report_trial(trial(0))
    assert len(plane.seen) == 4


def test_a_control_plane_that_does_not_answer_is_named_at_the_first_try(
    plane: Plane, control: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    plane.statuses = [500, 503, 502]
    control.report_trial(trial(0))

    assert caplog.messages == [f"{plane.url} does not answer (HTTP 500); trying again"]


@pytest.mark.parametrize("page", [b"<html>Back in a moment.</html>", b"[]", b'{"ok": true}'])
def test_a_page_in_the_place_of_an_answer_is_none(
    plane: Plane, control: ControlPlane, page: bytes
) -> None:
    """A report that nobody has stored would be taken for one that was, and the checkpoint before it deleted."""
    plane.reply = {"segment": 7, "num_steps": 20}
    requests: list[Callable[[], object]] = [
        lambda: control.report_trial(trial(0)),
        lambda: control.request_segment(start_step=0, num_steps=20),
        lambda: control.end_segment(1, Checkpoint(step=5, path="/x", sha256="0" * 64)),
        lambda: control.finish("succeeded"),
    ]
    for request in requests:
        plane.seen.clear()
        plane.pages = [page, page]
        request()
        assert len(plane.seen) == 3


@pytest.mark.parametrize(
    ("status", "kind", "page"),
    [
        (404, "text/plain", b"404 page not found\n"),
        (302, "text/html", b""),
        (403, "application/json", b'{"error": "forbidden"}'),
        (404, "application/json", b'{"message": "no Route matched with those values"}'),
        (409, "text/html", b"<html>Conflict</html>"),
    ],
)
def test_a_refusal_of_who_stands_before_the_control_plane_is_none(
    plane: Plane, control: ControlPlane, status: int, kind: str, page: bytes
) -> None:
    """As of a proxy that knows no way to it for a moment, while it is installed anew."""
    plane.reply, plane.headers = {"segment": 7, "num_steps": 20}, {"Content-Type": kind}
    plane.statuses, plane.pages = [status, status], [page] * 2
    assert control.request_segment(start_step=20, num_steps=20).segment == 7

    plane.statuses, plane.headers = [403], {}
    with pytest.raises(RefusedError, match="attempt 2 lives"):
        control.request_segment(start_step=40, num_steps=20)


def test_a_report_that_a_proxy_finds_too_large_is_refused_at_once(
    plane: Plane, control: ControlPlane
) -> None:
    plane.statuses, plane.headers = [413], {"Content-Type": "text/html"}
    with pytest.raises(RefusedError, match="HTTP 413"):
        control.report_trial(trial(0))


def test_where_nothing_of_a_control_plane_was_ever_heard_a_refusal_says_so_at_once(
    plane: Plane, control: ControlPlane
) -> None:
    plane.headers = {"Content-Type": "text/plain"}
    plane.statuses, plane.pages = [404], [b"404 page not found\n"]
    with pytest.raises(RefusedError, match="HTTP 404: 404 page not found"):
        control.assignment()


def test_a_page_that_stays_is_told_of(plane: Plane) -> None:
    plane.pages = [b"<html>Back in a moment.</html>"] * 1000
    patience = Patience(deadline_seconds=0.2, first_pause_seconds=0.02, longest_pause_seconds=0.1)
    client = ControlPlane(settings(plane.url), patience=patience)
    with pytest.raises(
        UnreachableError, match="the last one: what answers is not the control plane"
    ):
        client.assignment()
    client.close()


def test_heartbeats_outlive_a_page_in_the_place_of_an_answer(
    plane: Plane, control: ControlPlane
) -> None:
    plane.reply = {"desired": "cancel"}
    plane.pages = [b"<html>Back in a moment.</html>", b"null", b'{"desired": "nothing"}']
    with Heartbeats(control, interval_seconds=0.02) as heartbeats:
        assert heartbeats.cancelled.wait(5.0)


def test_a_heartbeat_that_nobody_answers_leaves_time_for_others(
    plane: Plane, control: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a connection to an API whose machine is gone: a driver that waits for it is taken for dead."""
    timeout_seconds = Settings.model_fields["heartbeat_timeout_seconds"].default
    assert 3 * (report.ONE_TRY.answer_seconds + report.HEARTBEAT_SECONDS) <= timeout_seconds

    one_try = replace(report.ONE_TRY, answer_seconds=0.2)
    monkeypatch.setattr(report, "ONE_TRY", one_try)
    plane.reply = {"desired": "cancel"}
    plane.silences = 2
    with Heartbeats(control, interval_seconds=0.02) as heartbeats:
        assert heartbeats.cancelled.wait(5.0)
    assert len(plane.seen) >= 3


def test_an_answer_that_cannot_be_decoded_is_none(plane: Plane, control: ControlPlane) -> None:
    plane.headers = {"Content-Encoding": "gzip"}
    plane.reply = {"segment": 7, "num_steps": 20}
    plane.pages = [b"no gzip", gzip.compress(b'{"segment": 7, "num_steps": 20}')]
    assert control.request_segment(start_step=0, num_steps=20).segment == 7
    assert len(plane.seen) == 2


def test_a_retried_segment_request_keeps_its_request_id(
    plane: Plane, control: ControlPlane
) -> None:
    plane.statuses = [500, 500]
    plane.reply = {"segment": 7, "num_steps": 20}
    assert control.request_segment(start_step=0, num_steps=20).segment == 7
    assert control.request_segment(start_step=20, num_steps=20).num_steps == 20
    ids = [body["request_id"] for _, _, body in plane.seen if body]
    assert len(ids) == 4
    assert len(set(ids[:3])) == 1
    assert ids[3] != ids[0]


def test_a_conflict_is_not_retried(plane: Plane, control: ControlPlane) -> None:
    plane.statuses = [409]
    with pytest.raises(FencedError, match="attempt 2 lives"):
        control.end_segment(1, Checkpoint(step=5, path="/x", sha256="0" * 64))
    assert len(plane.seen) == 1


@pytest.mark.parametrize("status", [401, 404, 422])
def test_an_answer_that_repeating_cannot_change_is_not_retried(
    plane: Plane, control: ControlPlane, status: int
) -> None:
    plane.statuses = [status]
    with pytest.raises(RefusedError, match=f"HTTP {status}"):
        control.finish("succeeded")
    assert len(plane.seen) == 1


def test_a_control_plane_that_stays_away_is_given_up_at_the_deadline() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_address[1]
    patience = Patience(deadline_seconds=0.3, first_pause_seconds=0.02, longest_pause_seconds=0.1)
    client = ControlPlane(settings(f"http://127.0.0.1:{port}"), patience=patience)
    with pytest.raises(UnreachableError, match=r"within 0.3 s; the last one: ConnectError"):
        client.report_trial(trial(0))
    client.close()


def test_a_control_plane_that_comes_back_gets_the_report() -> None:
    first = Plane()
    port = first.server_address[1]
    first.server_close()
    client = ControlPlane(settings(f"http://127.0.0.1:{port}"), patience=IMPATIENT)
    sender = threading.Thread(target=client.report_trial, args=(trial(4),))
    sender.start()
    time.sleep(0.2)
    ThreadingHTTPServer.allow_reuse_address = True
    again = Plane.__new__(Plane)
    ThreadingHTTPServer.__init__(again, ("127.0.0.1", port), Handler)
    again.statuses, again.reply, again.seen, again.tokens = [], {}, [], set()
    again.pages, again.headers, again.silences = [], {}, 0
    server = threading.Thread(target=again.serve_forever, daemon=True)
    server.start()
    sender.join(timeout=5)
    client.close()
    again.shutdown()
    again.server_close()
    server.join()
    assert [path for _, path, _ in again.seen] == ["/worker/runs/s1-search/trials/4"]


def test_pauses_grow_up_to_a_ceiling() -> None:
    patience = Patience()
    pauses = [patience.pause(tries) for tries in (1, 2, 3, 10, 10_000)]
    assert pauses == [0.2, 0.4, 0.8, 10.0, 10.0]


def test_heartbeats_carry_the_newest_step_and_learn_of_a_cancel(
    plane: Plane, control: ControlPlane
) -> None:
    plane.reply = {"desired": "run"}
    with Heartbeats(control, interval_seconds=0.02) as heartbeats:
        heartbeats.progress(12, 0.25)
        seen = len(plane.seen)
        assert soon(lambda: len(plane.seen) > seen + 1)
        assert not heartbeats.cancelled.is_set()
        plane.reply = {"desired": "cancel"}
        assert heartbeats.cancelled.wait(2.0)
    last = plane.seen[-1][2]
    assert last is not None
    assert (last["step"], last["steps_per_second"]) == (12, 0.25)


def test_heartbeats_say_how_many_ranks_there_are(plane: Plane, control: ControlPlane) -> None:
    plane.reply = {"desired": "run"}

    def told() -> list[object]:
        return [body["ranks"] for _, _, body in plane.seen if body is not None]

    with Heartbeats(control, interval_seconds=0.02) as heartbeats:
        assert soon(lambda: None in told())
        heartbeats.note_ranks(3)
        assert soon(lambda: told()[-2:] == [3, 3])


def test_heartbeats_say_what_the_attempt_waits_for(plane: Plane, control: ControlPlane) -> None:
    plane.reply = {"desired": "run"}

    def told() -> list[object]:
        bodies = [body for _, _, body in plane.seen if body is not None]
        return [(body["waits_for"], body["waited_seconds"]) for body in bodies]

    with Heartbeats(control, interval_seconds=0.02) as heartbeats:
        assert soon(lambda: (None, 0.0) in told())
        heartbeats.note_waiting("waiting for a place", 5.0)
        assert soon(lambda: told()[-1] == ("waiting for a place", 5.0))
        heartbeats.note_waiting("waiting for a place", 2.0)
        heartbeats.note_waiting(None, 0.0)
        assert soon(lambda: told()[-1] == (None, 7.0))


def test_heartbeats_say_how_far_features_are_until_it_is_heard_that_all_are_there(
    plane: Plane, control: ControlPlane
) -> None:
    plane.reply = {"desired": "run"}

    def told() -> list[object]:
        return [body["features"] for _, _, body in plane.seen if body is not None]

    with Heartbeats(control, interval_seconds=0.02) as heartbeats:
        for done in (40, 90):
            made = FeaturesMade(done=done, number=90, per_second=2.5)
            heartbeats.note_features(made)
            assert soon(lambda made=made: made.model_dump() in told())
        assert soon(lambda: told()[-1] is None)


def test_a_run_whose_steps_do_not_come_on_tells_no_speed_of_before(
    plane: Plane, control: ControlPlane
) -> None:
    plane.reply = {"desired": "run"}

    def told() -> list[float]:
        bodies = [body for _, _, body in plane.seen if body and body["step"] == 12]
        return [float(str(body["steps_per_second"])) for body in bodies]

    with Heartbeats(control, interval_seconds=0.02) as heartbeats:
        heartbeats.progress(12, 1000.0)
        assert soon(lambda: bool(told()) and told()[-1] < 5)
    assert told() == sorted(told(), reverse=True)


def test_heartbeats_are_as_far_apart_as_they_are_asked_to_be(
    plane: Plane, control: ControlPlane
) -> None:
    plane.reply = {"desired": "run"}
    plane.headers = {HEARTBEAT_PAUSE: "30"}
    with Heartbeats(control, interval_seconds=0.01):
        assert soon(lambda: control.heartbeat_pause == 30.0)
        time.sleep(0.2)
        assert len(plane.seen) == 1


@pytest.mark.parametrize(
    ("header", "seconds"), [("", 0.0), ("soon", 0.0), ("-3", 0.0), ("nan", 0.0), ("1e9", 60.0)]
)
def test_a_pause_that_makes_no_sense_is_not_made(
    plane: Plane, control: ControlPlane, header: str, seconds: float
) -> None:
    plane.reply = {"desired": "run"}
    plane.headers = {HEARTBEAT_PAUSE: header}

    control.heartbeat()

    assert control.heartbeat_pause == seconds


def test_heartbeats_tell_a_pause_from_a_cancel(plane: Plane, control: ControlPlane) -> None:
    plane.reply = {"desired": "pause"}
    with Heartbeats(control, interval_seconds=0.02) as heartbeats:
        assert heartbeats.paused.wait(2.0)
        assert not heartbeats.cancelled.is_set()


def test_missed_heartbeats_do_not_end_the_driver(plane: Plane, control: ControlPlane) -> None:
    plane.reply = {"desired": "run"}
    plane.statuses = [500, 503]
    with Heartbeats(control, interval_seconds=0.02):
        assert soon(lambda: len(plane.seen) > 3)


def test_a_refused_heartbeat_after_the_final_report_is_no_alarm(
    plane: Plane, control: ControlPlane
) -> None:
    plane.reply = {"desired": "run"}
    with Heartbeats(control, interval_seconds=0.02) as heartbeats:
        heartbeats.expect_end()
        plane.statuses = [409]
        assert soon(lambda: not plane.statuses)


@pytest.mark.slow
def test_trial_reports_arrive_in_the_order_they_were_queued(
    plane: Plane, control: ControlPlane
) -> None:
    plane.statuses = [503, 200, 500]
    with TrialReporter(control) as reporter:
        for number in range(20):
            reporter.put(trial(number))
            reporter.put(trial(number, TrialState.COMPLETED))
    stored = list(dict.fromkeys(_key(body) for _, _, body in plane.seen))
    assert stored == [(n, state) for n in range(20) for state in ("running", "completed")]


def test_a_refused_trial_report_surfaces_at_the_end(plane: Plane, control: ControlPlane) -> None:
    plane.statuses = [422]
    with pytest.raises(RefusedError), TrialReporter(control) as reporter:
        reporter.put(trial(0))


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_trial_report_that_cannot_be_sent_surfaces(plane: Plane, control: ControlPlane) -> None:
    """Nobody is to take a search for one whose trials are all stored where they are not."""
    broken = trial(0).model_copy(update={"reason": "\udcff"})
    with pytest.raises(ValueError, match="surrogates"), TrialReporter(control) as reporter:
        reporter.put(broken)


def _key(body: dict[str, object] | None) -> tuple[object, object]:
    assert body is not None
    record = body["trial"]
    assert isinstance(record, dict)
    return record["number"], record["state"]


DRIVER = """
import time
from pydantic import SecretStr
from worker.report import ControlPlane, Heartbeats
from worker.settings import WorkerSettings
settings = WorkerSettings(api_url={url!r}, run_id="r", fence=1, run_token=SecretStr("t"))
with Heartbeats(ControlPlane(settings), interval_seconds=0.05):
    try:
        time.sleep(30)
    finally:
        print("an orderly exit")
"""


@pytest.mark.parametrize(("status", "code"), [(409, EXIT_FENCED), (401, EXIT_REFUSED)])
def test_a_driver_without_standing_ends_at_once(plane: Plane, status: int, code: int) -> None:
    plane.reply = {"desired": "run"}
    plane.statuses = [200, status]
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER.format(url=plane.url)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert ended.returncode == code
    assert "an orderly exit" not in ended.stdout
    assert "attempt 2 lives" in ended.stderr
