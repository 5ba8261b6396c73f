"""The private model of a study: its weights, whole and unaltered, however often the line breaks."""

import hashlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO

import httpx

from service.client.connection import Connection, study_path
from service.client.errors import ClientError, ProblemError, UnreachableError

RETRY_AFTER_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Waits before a download that was cut is taken up again; bytes that arrive begin them anew."""
_DIGEST = re.compile(r'(?:W/)?"([0-9a-f]{64})"')


@dataclass(frozen=True)
class SavedModel:
    """A model on disk."""

    path: Path
    size_bytes: int
    sha256: str
    """Of the file, as the service states it and as it was computed from the file."""


class Models(Connection):
    """``/studies/{study_id}/model``."""

    def get_model(self, study_id: str, target: IO[bytes]) -> int:
        """Bytes of the private model (safetensors) that were written to ``target``, unchecked."""
        with self._stream(f"{study_path(study_id)}/model", headers={"Accept": "*/*"}) as response:
            return sum(target.write(chunk) for chunk in response.iter_bytes())

    def save_model(
        self,
        study_id: str,
        path: Path,
        *,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> SavedModel:
        """The private model at ``path``, checked against the digest that the service states.

        What has arrived is kept beside ``path`` in ``NAME.part`` until the file is whole, and is taken
        up there, in this call or in a later one: the service is asked for the rest of the same weights.

        Args:
            study_id: whose model.
            path: is replaced when the file is whole and right, and not before.
            on_progress: is called with the bytes that are there and those of the whole.

        Raises:
            ProblemError: there is no model.
            UnreachableError: the line broke again and again; what has arrived is kept.
            ClientError: what arrived is not what the service states. It is deleted.
            OSError: the file cannot be written.
        """
        part = path.with_name(f"{path.name}.part")
        waits = iter(RETRY_AFTER_SECONDS)
        while True:
            before = _size(part)
            try:
                sha256 = self._fill(study_id, part, on_progress or _silent)
                break
            except ProblemError as error:
                if error.status != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    raise
                part.unlink()  # nothing was left to send: begin anew
            except UnreachableError:
                if _size(part) > before:
                    waits = iter(RETRY_AFTER_SECONDS)
                wait = next(waits, None)
                if wait is None:
                    raise
                time.sleep(wait)
        found = _sha256(part)
        if found != sha256:
            part.unlink()
            raise ClientError(
                f"what arrived has SHA-256 {found}, the service states {sha256}: it was deleted"
            )
        size = part.stat().st_size
        os.replace(part, path)
        _label(part).unlink(missing_ok=True)
        return SavedModel(path=path, size_bytes=size, sha256=sha256)

    def _fill(self, study_id: str, part: Path, on_progress: Callable[[int, int], None]) -> str:
        """The digest of the model, once all of its bytes are in ``part``."""
        headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
        begun, label = _size(part), _read(_label(part))
        if begun and label:
            # If-Range: of other weights, all is sent.
            headers |= {"Range": f"bytes={begun}-", "If-Range": f'"{label}"'}
        with self._stream(f"{study_path(study_id)}/model", headers=headers) as response:
            sha256 = _digest_of(response)
            is_rest = response.status_code == HTTPStatus.PARTIAL_CONTENT
            done = begun if is_rest else 0
            total = done + int(response.headers.get("Content-Length", 0))
            _label(part).write_text(sha256)
            with part.open("ab" if is_rest else "wb") as file:
                on_progress(done, total)
                for chunk in response.iter_bytes():
                    done += file.write(chunk)
                    on_progress(done, total)
        return sha256


def _digest_of(response: httpx.Response) -> str:
    found = _DIGEST.fullmatch(response.headers.get("ETag", ""))
    if found is None:
        raise ClientError(
            "the service does not state the SHA-256 of the model: something between here and there "
            "drops its ETag"
        )
    return found[1]


def _label(part: Path) -> Path:
    """Beside a part: the digest of the whole that it is a part of."""
    return part.with_name(f"{part.name}.sha256")


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _silent(done: int, total: int) -> None:
    """For who does not look."""
