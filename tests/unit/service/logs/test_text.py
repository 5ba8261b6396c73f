"""What of a driver's log says by itself what the driver died of."""

import pytest

from service.logs.text import last_words

FRAMES = """Traceback (most recent call last):
  File "worker/report.py", line 184, in _request
    response = self._http.request(method, self._root + path)
"""
KILLED = (
    FRAMES
    + """  File "httpcore/_backends/sync.py", line 128, in read
    return self._sock.recv(max_bytes)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^
KeyboardInterrupt
"""
)
ERROR = "2026-11-25 14:14:48,232 ERROR worker.driver "
ORIGIN = " [run_id=s-1-private attempt=1]\n"
JSON = (
    '{"time": "2026-11-25", "level": "error", "logger": "worker.driver", "message": "no answer"}\n'
)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (FRAMES + "ModuleNotFoundError: No module named 'ray'\n", "ModuleNotFoundError: No module named 'ray'"),
        (FRAMES + "torch.OutOfMemoryError: 2 GiB\n\n", "torch.OutOfMemoryError: 2 GiB"),
        (FRAMES + "pydantic.ValidationError: 1 error\nfence\n  Field required\n", "pydantic.ValidationError: 1 error"),
        (FRAMES + "ray.exceptions.RayTaskError(ValueError): ray::fit()\n  File ...\nValueError: no column\n", "ValueError: no column"),
        (ERROR + "no answer in 9 tries" + ORIGIN, "no answer in 9 tries"),
        (JSON, "no answer"),
        (ERROR + "the work failed" + ORIGIN + FRAMES + "ValueError: no column\n", "ValueError: no column"),
    ],
)  # fmt: skip
def test_the_error_at_the_end_stands_for_itself(log: str, words: str) -> None:
    assert last_words("step 7 of 40\n" + log) == words


@pytest.mark.parametrize(
    "log",
    [
        "",
        "\n",
        "epoch 1\nKilled\n",
        KILLED,
        FRAMES + "ConnectionError: refused\n\nDuring handling of the above exception:\n\n" + KILLED,
        FRAMES + "ValueError\n",
        ERROR + "no answer" + ORIGIN + "2026-11-25 14:14:49,000 INFO worker.driver goes on" + ORIGIN,
        '{"level": "info", "message": "succeeded"}\n',
        "[1, 2]\n",
        "[" * 100_000,
    ],
)  # fmt: skip
def test_all_else_does_not(log: str) -> None:
    assert last_words(log) is None
