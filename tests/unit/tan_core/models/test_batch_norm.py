"""Group normalisation in place of batch normalisation: what it is, what it takes over, and what is refused."""

import doctest
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.engine import check_model, checkpoint
from tan_core.errors import ModelError, ParameterError, PretrainedError
from tan_core.models import batch_norm, build, replace_batch_norm
from tan_core.models.checkpoint_file import Checkpoint, read
from tan_core.spec.models import PythonModel, TimmModel
from tan_core.testing.conformance import ModelConformance
from tests.unit.tan_core.engine.oracle import books_are_enough

SHAPE, CLASSES = (3, 8, 8), 3
LAYERS = '''
from torch import nn

class BatchNormAct2d(nn.BatchNorm2d):
    """As timm has it: the norm, then drop, then act."""

    def __init__(self, num_features, act):
        super().__init__(num_features, eps=1e-3)
        self.drop, self.act = nn.Identity(), act

    def forward(self, x):
        return self.act(self.drop(super().forward(x)))

class SplitBatchNorm2d(nn.BatchNorm2d):
    pass
'''
TIMM = """
from torch import nn
from timm.layers.norm_act import BatchNormAct2d, SplitBatchNorm2d

def create_model(model_name, pretrained=False, num_classes=1000, in_chans=3, **options):
    kind = SplitBatchNorm2d if model_name == "split" else nn.BatchNorm2d
    return nn.Sequential(
        nn.Conv2d(in_chans, 48, 3, bias=False),
        BatchNormAct2d(48, nn.Hardswish(inplace=True)),
        nn.Conv2d(48, 40, 3),
        kind(40),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(40, num_classes),
    )
"""
ZOO = """
from torch import nn

class Vectors(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(channels, 64, 3), nn.BatchNorm2d(64, affine=False)
        self.hidden, self.bn1 = nn.Linear(64, 16), nn.BatchNorm1d(16)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = self.bn(self.conv(x)).relu().mean((2, 3))
        return self.head(self.bn1(self.hidden(x)).tanh())

def vectors(*, shape, num_classes):
    return Vectors(shape[0], num_classes)

class Asks(Vectors):
    def forward(self, x):
        return super().forward(x + self.bn.running_mean[0])

def asks(*, shape, num_classes):
    return Asks(shape[0], num_classes)
"""
FACTORIES = ["timm:hard", "python:lab_of_norms:vectors"]


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for timm, and a user's own functions; forgotten afterwards."""
    (tmp_path / "timm" / "layers").mkdir(parents=True)
    (tmp_path / "timm" / "__init__.py").write_text(TIMM)
    (tmp_path / "timm" / "layers" / "__init__.py").touch()
    (tmp_path / "timm" / "layers" / "norm_act.py").write_text(LAYERS)
    (tmp_path / "lab_of_norms.py").write_text(ZOO)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("timm", "timm.layers", "timm.layers.norm_act", "lab_of_norms"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def spec_of(name: str, **more: Any) -> TimmModel | PythonModel:
    kind = TimmModel if name.startswith("timm:") else PythonModel
    return kind.model_validate({"name": name, "replace_batch_norm": "group", **more})


def make(name: str, *, seed: int = 0, checkpoint: Checkpoint | None = None, **more: Any) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return build(
        spec_of(name, **more),
        shape=SHAPE,
        num_classes=CLASSES,
        generator=generator,
        checkpoint=checkpoint,
    )


def behind(layer: nn.Module, channels: int, dims: int = 2) -> nn.Sequential:
    """A model of a convolution of some dimensions, and the layer."""
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
    return nn.Sequential(kind(1, channels, 1), layer)


class TestReplace:
    @pytest.mark.parametrize(
        ("kind", "dims"),
        [
            (nn.BatchNorm1d, 1),
            (nn.BatchNorm2d, 2),
            (nn.BatchNorm3d, 3),
            (nn.SyncBatchNorm, 2),
            (nn.SyncBatchNorm, 1),
        ],
    )
    def test_scale_shift_and_eps_are_those_of_the_layer(self, kind: Any, dims: int) -> None:
        layer = kind(48, eps=0.1)
        nn.init.normal_(layer.weight)
        layer.bias.requires_grad_(False)
        model = behind(layer, 48, dims)

        assert replace_batch_norm(model, (1, *[4] * dims)) == {"1": "1"}

        assert type(model[1]) is nn.GroupNorm
        assert (model[1].num_groups, model[1].num_channels, model[1].eps) == (24, 48, 0.1)
        assert model[1].weight is layer.weight
        assert model[1].bias is layer.bias
        assert not [*model.buffers()]

    def test_a_layer_without_scale_and_shift_stays_so(self) -> None:
        model = behind(nn.BatchNorm2d(64, affine=False), 64)

        replace_batch_norm(model, (1, 4, 4))

        assert not [*model[1].parameters()]
        assert not model[1].affine

    def test_a_layer_without_a_shift_stays_so(self) -> None:
        model = behind(nn.BatchNorm2d(64, bias=False), 64)

        replace_batch_norm(model, (1, 4, 4))

        assert [name for name, _ in model[1].named_parameters()] == ["weight"]

    @pytest.mark.parametrize(
        ("channels", "groups"),
        [(1, 1), (6, 6), (32, 32), (34, 17), (37, 1), (64, 32), (96, 32), (100, 25), (320, 32)],
    )
    def test_groups_are_as_many_as_divide_the_channels_up_to_32(
        self, channels: int, groups: int
    ) -> None:
        model = behind(nn.BatchNorm2d(channels), channels)

        replace_batch_norm(model, (1, 4, 4))

        assert model[1].num_groups == groups

    @pytest.mark.parametrize(
        ("pixels", "channels", "groups"),
        [(1, 64, 1), (1, 95, 19), (1, 96, 32), (2, 32, 1), (3, 32, 32), (1, 512, 32)],
    )
    def test_one_group_is_left_where_each_would_hold_fewer_than_three_numbers(
        self, pixels: int, channels: int, groups: int
    ) -> None:
        """One number is normalised to 0 and two to a sign: the layer would be a constant, or nearly."""
        model = behind(nn.BatchNorm2d(channels), channels)

        replace_batch_norm(model, (1, 1, pixels))

        assert model[1].num_groups == groups

    @pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.SyncBatchNorm])
    def test_on_vectors_it_is_a_layer_normalisation(self, kind: Any) -> None:
        model = nn.Sequential(nn.Linear(5, 512), kind(512))

        replace_batch_norm(model, (5,))

        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(model(x), functional.layer_norm(model[0](x), (512,)))

    @pytest.mark.parametrize(("channels", "told"), [(1, "1 number"), (2, "2 numbers")])
    def test_too_few_numbers_to_normalise_are_refused(self, channels: int, told: str) -> None:
        model = nn.Sequential(nn.Linear(5, channels), nn.BatchNorm1d(channels))

        with pytest.raises(ModelError, match=f"layer '1' reads {told} of an example") as caught:
            replace_batch_norm(model, (5,))

        assert caught.value.field == "model.replace_batch_norm"

    def test_what_may_compute_something_else_is_refused_by_name(self) -> None:
        class Own(nn.BatchNorm2d):
            pass

        hooked = nn.BatchNorm2d(4)
        hooked.register_forward_hook(lambda *_: None)
        for layer in (Own(4), hooked, nn.LazyBatchNorm2d()):
            model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Sequential(layer))

            with pytest.raises(ModelError, match=rf"layer '2\.0' is {type(layer).__name__}, which"):
                replace_batch_norm(model, (1, 4, 4))

            assert type(model[1]) is nn.BatchNorm2d

        with pytest.raises(ModelError, match="the model is BatchNorm2d, which"):
            replace_batch_norm(nn.BatchNorm2d(1), (1, 4, 4))

    def test_what_places_shared_they_share_afterwards(self) -> None:
        shared = nn.BatchNorm2d(48)
        model = nn.Sequential(
            nn.Conv2d(1, 48, 1), shared, nn.Sequential(shared), nn.BatchNorm2d(48)
        )
        model[3].weight = shared.weight

        assert replace_batch_norm(model, (1, 4, 4)) == {"1": "1", "2.0": "2.0", "3": "3"}

        assert model[1] is model[2][0]
        assert model[3] is not model[1]
        assert model[3].weight is model[1].weight is shared.weight

    def test_a_model_without_any_is_as_it_was(self) -> None:
        model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4))
        before = [*model.children()]

        assert replace_batch_norm(model, (1, 4, 4)) == {}

        assert [*model.children()] == before

    def test_the_global_generator_stays_and_so_does_the_mode(self) -> None:
        model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)).eval()
        model[2].train()
        before = torch.get_rng_state()

        replace_batch_norm(model, (5,))

        assert torch.equal(torch.get_rng_state(), before)
        assert not model[1].training

    def test_where_32_divides_the_channels_it_is_what_opacus_makes(self) -> None:
        from opacus.validators import ModuleValidator

        model = nn.Sequential(nn.Conv2d(1, 96, 3), nn.BatchNorm2d(96), nn.Flatten())
        nn.init.normal_(model[0].weight, generator=torch.Generator().manual_seed(0))
        theirs = ModuleValidator.fix(model)
        x = torch.randn(3, 1, 6, 6, generator=torch.Generator().manual_seed(1))

        replace_batch_norm(model, (1, 6, 6))

        torch.testing.assert_close(model(x), theirs(x))

    def test_inputs_have_the_type_of_what_is_trained(self) -> None:
        model = behind(nn.BatchNorm2d(48), 48).double()

        replace_batch_norm(model, (1, 4, 4))

        assert model[1].weight.dtype is torch.float64

    def test_the_examples_in_its_docstrings_are_true(self) -> None:
        results = doctest.testmod(batch_norm)

        assert results.attempted > 3
        assert not results.failed


@pytest.mark.usefixtures("importable")
class TestBuild:
    @pytest.mark.parametrize("name", FACTORIES)
    def test_without_the_option_the_refusal_says_what_to_set(self, name: str) -> None:
        model = make(name, replace_batch_norm=None)

        with pytest.raises(
            ModelError, match=r"is BatchNorm.* it mixes .*replace_batch_norm: group"
        ):
            check_model(model)

    @pytest.mark.parametrize("name", FACTORIES)
    def test_with_it_the_model_is_accepted_and_books_are_enough(self, name: str) -> None:
        model = make(name)

        check_model(model)
        assert books_are_enough(model)

    def test_the_activation_of_timms_layer_follows_the_norm(self) -> None:
        model = make("timm:hard")
        x = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(0))
        nn.init.normal_(model[1].norm.weight)
        entered = model[0](x)

        found = model[1](entered)

        assert model[1].norm.eps == 1e-3
        normed = functional.group_norm(entered, 24, model[1].norm.weight, None, 1e-3)
        torch.testing.assert_close(found, functional.hardswish(normed))

    def test_initial_weights_are_those_that_it_has_without(self) -> None:
        without, replaced = make("timm:hard", replace_batch_norm=None), make("timm:hard")

        assert torch.equal(replaced[0].weight, without[0].weight)
        assert torch.equal(replaced[7].weight, without[7].weight)

    def test_what_cannot_be_replaced_is_refused_by_name(self) -> None:
        with pytest.raises(ModelError, match="layer '3' is SplitBatchNorm2d, which"):
            make("timm:split")

    def test_code_that_asks_for_running_statistics_is_told_of_them(self) -> None:
        with pytest.raises(ParameterError, match=r"lab_of_norms:asks cannot be .*'running_mean'"):
            make("python:lab_of_norms:asks")


def begins(name: str, train: str = "all") -> Mapping[str, Any]:
    pretrained = {"path": "a.pt", "data": "public", "train": train, "sha256": "ab" * 32}
    return {"name": name, "pretrained": pretrained}


def of_batch_norm(name: str, *, num_classes: int = CLASSES) -> dict[str, Tensor]:
    """A checkpoint of the model as its code makes it, with statistics of a run."""
    model = build(
        spec_of(name, replace_batch_norm=None),
        shape=SHAPE,
        num_classes=num_classes,
        generator=torch.Generator().manual_seed(1),
    )
    generator = torch.Generator().manual_seed(2)
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.affine:
            nn.init.uniform_(layer.weight, generator=generator)
            nn.init.uniform_(layer.bias, generator=generator)
    return {key: value.clone() for key, value in model.state_dict().items()}


@pytest.mark.usefixtures("importable")
class TestCheckpoints:
    @pytest.mark.parametrize("prefix", ["", "module."])
    @pytest.mark.parametrize("name", FACTORIES)
    def test_all_but_the_running_statistics_of_batch_norms_is_loaded(
        self, name: str, prefix: str
    ) -> None:
        weights = of_batch_norm(name)
        wrapped = {prefix + key: value for key, value in weights.items()}

        model = make(**begins(name), checkpoint=Checkpoint(path="a.pt", weights=wrapped))

        loaded = {key.replace(".norm.", "."): each for key, each in model.state_dict().items()}
        statistics = weights.keys() - loaded.keys()
        assert {key.rpartition(".")[2] for key in statistics} == {
            "running_mean",
            "running_var",
            "num_batches_tracked",
        }
        assert all(torch.equal(value, weights[key]) for key, value in loaded.items())

    def test_a_classifier_may_be_trained_alone_and_be_for_other_classes(self) -> None:
        weights = of_batch_norm("timm:hard", num_classes=7)

        model = make(
            **begins("timm:hard", "classifier"), checkpoint=Checkpoint(path="a.pt", weights=weights)
        )

        trained = [name for name, p in model.named_parameters() if p.requires_grad]
        assert trained == ["7.weight", "7.bias"]
        assert torch.equal(model[1].norm.bias, weights["1.bias"])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"1.weight": None}, r"it lacks 1\.norm\.weight$"),
            ({"3.bias": None}, r"it lacks 3\.bias$"),
            ({"2.running_mean": torch.zeros(40)}, r"the model has no 2\.running_mean$"),
            ({"3.running_max": torch.zeros(40)}, r"the model has no 3\.running_max$"),
            ({"3.weight": torch.zeros(39)}, r"3\.weight has shape \[39\], expected \[40\]"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_anything_else_that_is_missing_or_left_over_is_refused(
        self, change: Mapping[str, Tensor | None], message: str
    ) -> None:
        weights = {
            key: value
            for key, value in (of_batch_norm("timm:hard") | change).items()
            if value is not None
        }

        with pytest.raises(PretrainedError, match=message):
            make(**begins("timm:hard"), checkpoint=Checkpoint(path="a.pt", weights=weights))

    def test_group_norms_of_the_models_own_have_no_statistics_to_leave_out(self) -> None:
        """Only where a layer was replaced do they have a place to come from."""
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4))
        weights = {**model.state_dict(), "1.running_mean": torch.zeros(4)}

        assert batch_norm.by_new_names(weights, {}, weights).keys() == weights.keys()

    @pytest.mark.parametrize("name", FACTORIES)
    def test_released_weights_say_of_which_model_they_are_and_load(
        self, name: str, tmp_path: Path
    ) -> None:
        weights = make(name, seed=3).state_dict()
        metadata = {"study_id": "s-1", "model": spec_of(name).model_dump(mode="json")}
        digest = checkpoint.save_weights(tmp_path / "a.safetensors", weights, metadata)
        found = read(tmp_path / "a.safetensors", digest)

        model = make(**begins(name), checkpoint=found)

        assert found.model == spec_of(name)
        assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())

    @pytest.mark.parametrize("suffix", ["pt", "safetensors"])
    def test_they_are_read_from_files_of_either_kind(self, suffix: str, tmp_path: Path) -> None:
        weights, file = of_batch_norm("timm:hard"), tmp_path / f"a.{suffix}"
        if suffix == "pt":
            torch.save({"state_dict": weights}, file)
        else:
            checkpoint.save_weights(file, weights, {"source": "elsewhere"})
        found = read(file, hashlib.sha256(file.read_bytes()).hexdigest())

        model = make(**begins("timm:hard"), checkpoint=found)

        assert torch.equal(model[3].weight, weights["3.weight"])


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("name", FACTORIES)
class TestEachModel(ModelConformance):
    """Norms and sums of the engine are those of one backward pass for each example, in either order of memory."""

    shape, num_classes = SHAPE, CLASSES

    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.name = name

    def make_model(self) -> nn.Module:
        return make(self.name)
