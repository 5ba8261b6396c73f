"""The checkpoint that a study begins from: whether it may be read, and which file it is."""

from pathlib import Path

from tan_core.data.pretrained import locate, sha256_of
from tan_core.errors import PretrainedError
from tan_core.spec import FieldProblem, StudySpec


def pinned(spec: StudySpec, directory: Path | None) -> tuple[StudySpec, list[FieldProblem]]:
    """The study with the SHA-256 of its checkpoint, which every worker then asks of the file.

    Args:
        spec: as submitted.
        directory: below which checkpoints may be read; None: nowhere.

    Returns:
        The study as it was, and why, where the file may not be read, is not there, or is another one
        than ``spec`` states.
    """
    pretrained = spec.model.pretrained
    if pretrained is None:
        return spec, []
    try:
        sha256 = sha256_of(locate(pretrained.path, directory))
    except PretrainedError as error:
        place = "model.pretrained.path"
        return spec, [FieldProblem(path=place, message=str(error), value=pretrained.path)]
    if pretrained.sha256 not in (None, sha256):
        place, message = "model.pretrained.sha256", f"the file has sha256 {sha256}"
        return spec, [FieldProblem(path=place, message=message, value=pretrained.sha256)]
    fixed = pretrained.model_copy(update={"sha256": sha256})
    model = spec.model.model_copy(update={"pretrained": fixed})
    return spec.model_copy(update={"model": model}), []
