"""Models that cannot be trained privately are refused by name, and no others are."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from tan_core import models
from tan_core.engine import check_model
from tan_core.engine.checkpoint import save_weights
from tan_core.errors import ModelError, ParameterError
from tests.support.models import SMALL_MODELS

REFUSED = {
    "batch-norm": (
        nn.BatchNorm2d(4),
        "'1' is BatchNorm2d: it mixes the examples.*; set model.replace_batch_norm: group ",
    ),
    "sync-batch-norm": (nn.SyncBatchNorm(4), "'1' is SyncBatchNorm: it mixes the examples"),
    "statistics": (nn.InstanceNorm2d(4, track_running_stats=True), "keeps running statistics"),
    "dropout": (nn.Dropout(0.5), "'1' is Dropout: it draws from torch's global generator; set p=0"),
    "attention-dropout": (
        nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True),
        "'1' is MultiheadAttention: it draws",
    ),
    "recurrent-dropout": (
        nn.LSTM(4, 4, num_layers=2, dropout=0.1, batch_first=True),
        "'1' is LSTM: it draws",
    ),
    "random-slope": (nn.RReLU(), "'1' is RReLU: it draws"),
    "random-pool": (nn.FractionalMaxPool2d(2, 2), "'1' is FractionalMaxPool2d: it draws"),
    "length-first": (nn.MultiheadAttention(4, 2), "'1' is MultiheadAttention.* batch_first=True"),
    "length-first-lstm": (nn.LSTM(4, 4), "'1' is LSTM.* batch_first=True"),
    "block-dropout": (
        nn.TransformerEncoderLayer(4, 2, 4, batch_first=True),
        r"'1\.self_attn' is MultiheadAttention: it draws",
    ),
    "max-norm": (nn.Embedding(4, 2, max_norm=1.0), "'1' is Embedding: it writes to its weight"),
    "sparse": (nn.EmbeddingBag(4, 2, sparse=True), "'1' is EmbeddingBag: .* sparse=False"),
    "by-frequency": (
        nn.Embedding(4, 2, scale_grad_by_freq=True),
        "'1' is Embedding: .* in the whole batch; set scale_grad_by_freq=False",
    ),
    "spectral-norm": (
        parametrizations.spectral_norm(nn.Linear(4, 4)),
        "'1' is ParametrizedLinear: spectral normalisation keeps a state",
    ),
    "old-spectral-norm": (
        nn.utils.spectral_norm(nn.Linear(4, 4)),
        "'1' is Linear: spectral normalisation keeps a state",
    ),
    "lazy": (nn.LazyLinear(4), r"'1\.weight' has no shape yet"),
    "meta": (
        nn.Linear(4, 4, device="meta"),
        r"'1\.weight' is on the device meta, .* no values: give it some",
    ),
}


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


ACCEPTED = {
    "attention": nn.MultiheadAttention(4, 2, batch_first=True),
    "block": nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0, batch_first=True),
    "gru": nn.GRU(4, 4, batch_first=True),
    "cell": nn.GRUCell(4, 4),
    "no-dropout": nn.Dropout(0.0),
    "weight-norm": parametrizations.weight_norm(nn.Linear(4, 4)),
    "tied": tied(),
    "half-frozen": nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)),
}


def _compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def _by_opacus(model: nn.Module) -> nn.Module:
    from opacus import GradSampleModule

    return GradSampleModule(model)


class Remembering(nn.Linear):
    """Keeps what no check of buffers sees, and has it saved."""

    def forward(self, x):
        self.seen = {"last": x.detach().sum(0)}
        return super().forward(x)

    def get_extra_state(self):
        return self.seen

    def set_extra_state(self, state) -> None:
        self.seen = state


class TestCheckModel:
    @pytest.mark.parametrize("name", SMALL_MODELS)
    def test_every_registered_model_passes(self, name: str) -> None:
        generator = torch.Generator().manual_seed(0)
        check_model(
            models.build(SMALL_MODELS[name], shape=(1, 8, 8), num_classes=3, generator=generator)
        )

    @pytest.mark.parametrize("layer", ACCEPTED.values(), ids=ACCEPTED)
    def test_a_layer_with_gradients_of_each_example_passes(self, layer: nn.Module) -> None:
        check_model(nn.Sequential(nn.Linear(4, 4), layer))

    @pytest.mark.parametrize(("layer", "message"), REFUSED.values(), ids=REFUSED)
    def test_a_layer_that_breaks_the_guarantee_is_refused_by_name(
        self, layer: nn.Module, message: str
    ) -> None:
        with pytest.raises(ModelError, match=message):
            check_model(nn.Sequential(nn.Conv2d(1, 4, 3), layer))

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.parametrize(
        ("wrap", "made_by", "instead"),
        [
            (partial(torch.compile, backend="eager"), "torch.compile made it", "_orig_mod"),
            (torch.jit.script, "TorchScript made it", "the module that it was made of"),
            (_compiled_in_place, r"its compile\(\) was called", "a module of which it was not"),
            (_by_opacus, "Opacus made it", "_module"),
        ],
    )
    def test_a_wrapped_model_is_refused_by_who_wrapped_it(self, wrap, made_by, instead) -> None:
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

        with pytest.raises(ParameterError, match=f"^the model is .*{made_by}.*pass .*{instead}"):
            check_model(wrap(model))

    def test_a_compiled_layer_is_refused_by_its_name(self) -> None:
        model = nn.Sequential(nn.Flatten(), torch.compile(nn.Linear(3, 2), backend="eager"))

        with pytest.raises(ParameterError, match=r"layer '1' is OptimizedModule: torch\.compile"):
            check_model(model)

    def test_a_model_with_nothing_to_train_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="no trainable parameter"):
            check_model(nn.Linear(3, 3).requires_grad_(False))

    def test_what_cannot_be_copied_is_named(self) -> None:
        layer = nn.Linear(4, 4)
        prune.l1_unstructured(layer, "weight", amount=3)
        model = nn.Sequential(layer, nn.Linear(4, 2))

        with pytest.raises(ModelError, match=r"'0' is Linear: its attribute 'weight' .*no_grad"):
            check_model(model)

        with torch.no_grad():
            model(torch.zeros(2, 4))
        check_model(model)

    def test_a_model_without_gradients_is_refused(self) -> None:
        with torch.inference_mode():
            model = nn.Linear(4, 2)

        with pytest.raises(ModelError, match=r"'weight' was made under torch\.inference_mode"):
            check_model(model)

    def test_what_would_be_released_beside_the_weights_is_refused(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Remembering(4, 2))
        model(torch.zeros(2, 4))

        with pytest.raises(ModelError, match=r"state_dict has '1\._extra_state', .* be released"):
            check_model(model)

    def test_what_no_file_of_weights_holds_is_refused_before_a_step_is_paid_for(self) -> None:
        model = nn.Linear(4, 2)
        model.register_buffer("table", torch.zeros(2, dtype=torch.complex128))

        with pytest.raises(
            ModelError, match=r"'table' of the model is .*complex128, which no file"
        ):
            check_model(model)

    @pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "not-kept"])
    @pytest.mark.parametrize(
        "make",
        [
            torch.Tensor.to_sparse,
            torch.Tensor.to_mkldnn,
            lambda plain: torch.quantize_per_tensor(plain, 0.1, 0, torch.qint8),
        ],
        ids=["sparse", "mkldnn", "quantised"],
    )
    @pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
    def test_so_is_what_no_checkpoint_tells_from_another_one(self, make, is_kept) -> None:
        """A run of one came to its first checkpoint, and ended there in an error of torch's."""
        value, buffered, frozen = make(torch.eye(2)), nn.Linear(4, 2), nn.Linear(4, 2)
        buffered.register_buffer("table", value, persistent=is_kept)
        frozen.table = nn.Parameter(value, requires_grad=False)

        for model in (buffered, frozen):
            with pytest.raises(ModelError, match=r"'table' of the model is .* make it a plain one"):
                check_model(model)

    @pytest.mark.parametrize("dtype", [torch.complex64, torch.bool, torch.uint16, torch.bfloat16])
    def test_what_one_holds_passes_and_so_does_what_is_not_kept(self, dtype, tmp_path) -> None:
        model = nn.Linear(4, 2)
        model.register_buffer("table", torch.zeros(2, dtype=dtype))
        model.register_buffer("beside", torch.zeros(2, dtype=torch.complex128), persistent=False)

        check_model(model)

        save_weights(tmp_path / "weights", model.state_dict())

    def test_a_hook_on_a_gradient_that_no_step_would_run_is_refused(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        handle = model[1].weight.register_hook(lambda g: 0 * g)

        with pytest.raises(ModelError, match=r"'1\.weight' has a hook on its gradient"):
            check_model(model)

        handle.remove()
        check_model(model)
        model[0].weight.register_post_accumulate_grad_hook(lambda p: None)
        with pytest.raises(ModelError, match=r"'0\.weight' has a hook on its gradient"):
            check_model(model)
        model[0].requires_grad_(False)
        check_model(model)

    def test_two_parameters_in_one_memory_are_refused(self) -> None:
        """A trainer would part them without a word."""
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight.data = model[0].weight.data

        with pytest.raises(ModelError, match=r"'0\.weight' and '1\.weight' lie in the same memory"):
            check_model(model)

        check_model(model.requires_grad_(False).append(nn.Linear(4, 2)))

    @pytest.mark.parametrize(
        ("first", "second", "are_apart"),
        [
            (slice(0, 8), slice(4, 12), False),
            (slice(4, 12), slice(0, 8), False),
            (slice(0, 12), slice(11, 12), False),
            (slice(0, 6), slice(6, 12), True),
            (slice(0, 12, 2), slice(1, 12, 2), True),
            (slice(0, 12, 2), slice(0, 12, 3), False),
        ],
    )
    def test_two_parameters_that_share_some_numbers_are_refused(
        self, first: slice, second: slice, are_apart: bool
    ) -> None:
        """Wherever they begin; not those that lie between each other."""
        numbers, model = torch.ones(12, 3), nn.Module()
        model.one, model.other = (nn.Parameter(numbers[each]) for each in (first, second))

        if are_apart:
            check_model(model)
            return
        with pytest.raises(ModelError, match=r"'(one|other)' and '(other|one)' lie"):
            check_model(model)

    def test_one_with_two_types_of_trained_parameters_is_refused_by_their_names(self) -> None:
        """Their vector would make all of them the wider one, behind the model's back."""
        model = nn.Sequential(nn.Linear(3, 3).double(), nn.Linear(3, 3))

        with pytest.raises(
            ParameterError, match=r"'0\.bias' is torch\.float64 and '1\.bias' is torch\.float32"
        ) as refused:
            check_model(model)

        assert refused.value.field == "model"
        model[1].requires_grad_(False)
        check_model(model)
