"""JAX-Privacy's step on tanh-cnn, by the Python that has it: one thread, CPU seconds of a step as JSON.

    PYTHON benchmarks/_peer_jax.py EXAMPLES ROUNDS

Imports nothing of this project: JAX need not be where torch is.
"""

import json
import os
import sys
import time
from importlib.metadata import version
from statistics import median
from typing import Any

os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 inter_op_parallelism_threads=1"
)
os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax  # noqa: E402 - it reads its flags when it is imported
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax_privacy import clipping, noise_addition  # noqa: E402

CLIP_NORM, RATE, SHORTEST_TURN = 1.0, 1e-6, 0.03
MICROBATCH = 64
"""The fastest of those tried: 512 examples at once take three times as long each as 64 do."""
SHAPES = {
    "w1": (16, 1, 8, 8), "b1": (16,), "w2": (32, 16, 4, 4), "b2": (32,),
    "w3": (512, 32), "b3": (32,), "w4": (32, 10), "b4": (10,),
}  # fmt: skip
"""26,010 parameters, as in tan_core.models.tanh_cnn."""


def logits(params: Any, image: Any) -> Any:
    """Of one image, [1, 28, 28]."""
    x = _convolved(image[None], params["w1"], params["b1"], stride=2, padding=3)
    x = _convolved(_pooled(x), params["w2"], params["b2"], stride=2, padding=0)
    x = jnp.tanh(_pooled(x).ravel() @ params["w3"] + params["b3"])
    return x @ params["w4"] + params["b4"]


def _convolved(x: Any, weight: Any, bias: Any, *, stride: int, padding: int) -> Any:
    x = lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2)
    return jnp.tanh(x + bias[:, None, None])


def _pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")


def loss(params: Any, image: Any, label: Any) -> Any:
    """Cross entropy of one example."""
    return -jax.nn.log_softmax(logits(params, image))[label]


def main() -> None:
    """Measure and print."""
    examples, rounds = int(sys.argv[1]), int(sys.argv[2])
    key = jax.random.key(0)
    params = {name: 0.1 * jax.random.normal(key, shape) for name, shape in SHAPES.items()}
    images = jax.random.normal(key, (examples, 1, 28, 28))
    labels = jax.random.randint(key, (examples,), 0, 10)
    gradient = clipping.clipped_grad(
        lambda params, batch: loss(params, *batch), l2_clip_norm=CLIP_NORM, batch_argnums=1,
        keep_batch_dim=False, microbatch_size=MICROBATCH if examples > MICROBATCH else None,
    )  # fmt: skip
    privatizer = noise_addition.gaussian_privatizer(stddev=CLIP_NORM, prng_key=key)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        total = gradient(params, (images, labels))
        noisy, state = privatizer.update(total, state)
        return jax.tree.map(lambda p, g: p - RATE * g, params, noisy), state

    state = privatizer.init(params)
    times: list[float] = []
    params, state = jax.block_until_ready(step(params, state))
    for _ in range(rounds):
        count, start = 0, time.process_time()
        while count == 0 or time.process_time() - start < SHORTEST_TURN:
            params, state = jax.block_until_ready(step(params, state))
            count += 1
        times.append((time.process_time() - start) / count)
    versions = {name: version(name) for name in ("jax", "jax-privacy")}
    print(json.dumps({"seconds": median(times), "versions": versions}))


if __name__ == "__main__":
    main()
