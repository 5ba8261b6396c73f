"""Where the draws, the noise and the augmentations of a run come from.

Every draw is a function of (key or seed, attempt or stream, step, purpose): all ranks see the same
Poisson draw, no state has to be saved, and nothing that other code does to the global generators of
torch or NumPy can reach it.
"""

import hashlib
import math
import struct
from typing import Final, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

from tan_core import _validate
from tan_core.engine import native
from tan_core.errors import ParameterError

Purpose = Literal["mask", "cut", "noise", "augmentation"]

KEY_BYTES: Final = 32
_WORDS_AT_ONCE: Final = 2**15
"""Of a draw; even, for a block of the cipher holds two."""
_PAIRS_AT_ONCE: Final = 2**16
"""Of normals, whose words are in memory: 2 MB with the noise itself. Of fewer each call would count, of more the cache."""


@runtime_checkable
class Randomness(Protocol):
    """All the randomness of one run; each method is a pure function of ``step``."""

    def mask(self, step: int, *, num_examples: int, sampling_rate: float) -> NDArray[np.int64]:
        """Rising indices of the step's Poisson draw over the whole dataset; it may be empty."""
        ...

    def cut(self, step: int, drawn: NDArray[np.int64], *, max_batch_size: int) -> NDArray[np.int64]:
        """A uniformly random part of that size, rising; all of a draw that is not above it."""
        ...

    def noise(self, step: int, size: int) -> Tensor:
        """Standard normal noise, [size], on the CPU; in a private run float64."""
        ...

    def add_noise(
        self, step: int, total_P: Tensor, deviation: float, *, share: int = 0, shares: int = 1
    ) -> None:
        """Add a share of the step's noise, times ``deviation``, to a vector [P].

        All shares, from 0 to ``shares - 1``, are the whole noise: each number is in one of them. It may be called
        from another thread than the rest, for a vector on the CPU, before the step's sum is there.
        """
        ...

    def augmentation(self, step: int) -> torch.Generator:
        """A generator for the step's augmentations."""
        ...


class PrivateRandomness:
    r"""Randomness of a private run: AES-256 in counter mode, keyed per (attempt, step, purpose).

    Formal guarantees:

    * An example is drawn with probability :math:`\lfloor q 2^{64} \rfloor / 2^{64}`: never above
      ``sampling_rate``, and below it by less than :math:`2^{-64}`.
    * A draw of n that is cut keeps every part of the size with the same probability, but for ties of
      64-bit words: they change it by less than :math:`n 2^{-64}` in all.
    * Views have all bits that a generator may have from their stream. They need them: which views an example gets
      depends on how many are drawn before it, so that a record more gives others to all behind it. Whoever could try all
      of few seeds would know them, and see that in a single noisy sum.
    * Different (key, attempt, step, purpose) never share a stream. One object gives each stream
      once: asking again for a step that has been drawn, or an earlier one, is an error, because the
      same noise on two gradients would reveal their difference.
    * The key shows up in no representation of the object.

    NOTE: noise is a normal rounded to float64, and is added in it. To a number that a sum rounded to float32 may be some
    2**29 values of it lead, from whatever sum; fewer where noise all but cancels the sum, under 2**m with a chance below
    2**(m - 30) for each number. To one in float64 hardly more than one value leads, or none: attacks on such low bits
    (Mironov 2012) are outside this guarantee. No value is beyond sqrt(2 * 64 * log(2)) = 9.42.

    Args:
        key: 32 bytes from the operating system, one per run; never stored or logged.
        attempt: number of the attempt, at least 1; a new attempt draws everything afresh.

    Raises:
        ParameterError: the key is not 32 bytes, or the attempt is not an integer >= 1.
    """

    __slots__ = ("_attempt", "_drawn", "_key")

    def __init__(self, key: bytes, attempt: int) -> None:
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:  # pyright: ignore[reportUnnecessaryIsInstance] a str key would be a disaster
            raise ParameterError(f"key must be {KEY_BYTES} bytes", field="key")
        attempt = _validate.plain(attempt)
        _validate.positive_integer(attempt=attempt)
        self._key = key
        self._attempt = attempt
        self._drawn: dict[Purpose, int] = {}

    def __repr__(self) -> str:
        return f"PrivateRandomness(key=<hidden>, attempt={self._attempt})"

    def __reduce__(self) -> str:
        raise TypeError("private randomness holds a key and is never serialised")

    def mask(self, step: int, *, num_examples: int, sampling_rate: float) -> NDArray[np.int64]:
        """Rising indices of the step's Poisson draw; int64, between 0 and ``num_examples`` of them."""
        _check_draw(num_examples, sampling_rate)
        stream = self._opened("mask", step)
        # In pieces: the words of all examples at once would be 24 bytes for each of them, and seldom in a cache.
        return np.concatenate(
            [
                start
                + _below(
                    _read(stream, start, min(_WORDS_AT_ONCE, num_examples - start)), sampling_rate
                )
                for start in range(0, num_examples, _WORDS_AT_ONCE)
            ]
        )

    def cut(self, step: int, drawn: NDArray[np.int64], *, max_batch_size: int) -> NDArray[np.int64]:
        """A uniformly random part of that size, rising; all of a draw that is not above it."""
        return _part(drawn, self._words("cut", step, len(drawn)), max_batch_size)

    def noise(self, step: int, size: int) -> Tensor:
        """Standard normal noise by Box and Muller; float64 [size]."""
        num_pairs = (size + 1) // 2
        words = self._words("noise", step, 2 * num_pairs)
        return _box_muller(words[:num_pairs], words[num_pairs:]).flatten()[:size]

    def add_noise(
        self, step: int, total_P: Tensor, deviation: float, *, share: int = 0, shares: int = 1
    ) -> None:
        """Add a share of the step's :meth:`noise` in float64, times ``deviation``, and round once to the type of the vector.

        Its stream is opened once.
        """
        num_pairs = (total_P.numel() + 1) // 2
        # Both numbers of a pair belong to one share.
        part = _part_of(num_pairs, share, shares)
        stream = self._opened("noise", step)
        for start in range(part.start, part.stop, _PAIRS_AT_ONCE):
            stop = min(start + _PAIRS_AT_ONCE, part.stop)
            radii, angles = (_read(stream, start + half, stop - start) for half in (0, num_pairs))
            pieces = (total_P[half + start : half + stop] for half in (0, num_pairs))
            _add_box_muller(radii, angles, deviation, *pieces)

    def augmentation(self, step: int) -> torch.Generator:
        """A generator for the step's augmentations, which has its whole state from the stream."""
        return _with_state(self._words("augmentation", step, 1 + _MERSENNE_WORDS // 2))

    def _words(self, purpose: Purpose, step: int, count: int) -> NDArray[np.uint64]:
        """The first ``count`` 64-bit words of the stream; each stream is opened once."""
        return _read(self._opened(purpose, step), 0, count)

    def _opened(self, purpose: Purpose, step: int) -> bytes:
        """The key of a stream that was not open before, nor one after it."""
        _validate.natural_number(step=step)
        last = self._drawn.get(purpose, -1)
        if step <= last:
            raise ParameterError(
                f"the {purpose} stream of step {step} must not be drawn again (last was {last}); "
                "a new attempt draws afresh",
                field="step",
            )
        self._drawn[purpose] = step
        return hashlib.blake2b(
            struct.pack("<QQ", self._attempt, step),
            key=self._key,
            person=purpose.encode(),
            digest_size=32,
        ).digest()


class SeededRandomness:
    """Fast, reproducible randomness for simulations; never for a private run.

    Args:
        seed: of the study.
        stream: tells trials of one seed apart.
    """

    __slots__ = ("_seed", "_stream")

    def __init__(self, seed: int, stream: int = 0) -> None:
        seed, stream = map(_validate.plain, (seed, stream))
        for name, value in (("seed", seed), ("stream", stream)):
            is_whole = type(value) is int  # pyright: ignore[reportUnnecessaryIsInstance] a 1.5 would be hashed too
            if not (is_whole and 0 <= value < 2**63):
                raise ParameterError(
                    f"{name} must be an integer in [0, 2**63), got {value!r}", field=name
                )
        self._seed = seed
        self._stream = stream

    def __repr__(self) -> str:
        return f"SeededRandomness(seed={self._seed}, stream={self._stream})"

    def mask(self, step: int, *, num_examples: int, sampling_rate: float) -> NDArray[np.int64]:
        """Rising indices of the step's Poisson draw; other ones where no kernels are."""
        # A number for each of N examples would cost more than a small batch: the gaps between those
        # that are drawn, or else how many there are and then which.
        _check_draw(num_examples, sampling_rate)
        seed = self._word("mask", step)
        if native.is_available():
            return native.poisson_sample(seed, num_examples, sampling_rate)
        random = np.random.Generator(np.random.PCG64(seed))
        size = random.binomial(num_examples, sampling_rate)
        drawn = random.choice(num_examples, size, replace=False, shuffle=False)
        return np.sort(drawn)

    def cut(self, step: int, drawn: NDArray[np.int64], *, max_batch_size: int) -> NDArray[np.int64]:
        """A uniformly random part of that size, rising; all of a draw that is not above it."""
        bits = np.random.Philox(key=self._word("cut", step))
        return _part(drawn, bits.random_raw(len(drawn)), max_batch_size)

    def noise(self, step: int, size: int) -> Tensor:
        """Standard normal noise, float32 [size], on the CPU; other numbers where no kernels are."""
        seed = self._word("noise", step)
        if not native.is_available():
            return torch.randn(size, generator=_seeded(seed), dtype=torch.float32)
        # The kernel writes float32, whatever torch makes by default.
        noise = torch.zeros(size, dtype=torch.float32)
        native.add_normal(noise, seed, 1.0)
        return noise

    def add_noise(
        self, step: int, total_P: Tensor, deviation: float, *, share: int = 0, shares: int = 1
    ) -> None:
        """Add a share of the step's :meth:`noise`, times ``deviation``; the whole in one pass where kernels can."""
        is_read = total_P.dtype == torch.float32 and total_P.is_contiguous()
        if shares == 1 and is_read and native.accepts(total_P):
            native.add_normal(total_P, self._word("noise", step), deviation)
        else:
            part = _part_of(total_P.numel(), share, shares)
            noise = self.noise(step, total_P.numel())[part.start : part.stop]
            total_P[part.start : part.stop].add_(noise.to(total_P), alpha=deviation)

    def augmentation(self, step: int) -> torch.Generator:
        """A generator for the step's augmentations."""
        return _seeded(self._word("augmentation", step))

    def _word(self, purpose: Purpose, step: int) -> int:
        _validate.natural_number(step=step)
        message = struct.pack("<QQQ", self._seed, self._stream, step)
        digest = hashlib.blake2b(message, person=purpose.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")


def _check_draw(num_examples: int, sampling_rate: float) -> None:
    _validate.positive_integer(num_examples=num_examples)
    _validate.probability(sampling_rate=sampling_rate)


def _below(words: NDArray[np.uint64], probability: float) -> NDArray[np.int64]:
    """Indices of the words below probability * 2**64, rounded down: exact up to 2**-64."""
    threshold = int(math.ldexp(probability, 64))
    if threshold == 2**64:
        return np.arange(len(words), dtype=np.int64)
    return np.flatnonzero(words < np.uint64(threshold)).astype(np.int64, copy=False)


def _part(
    drawn: NDArray[np.int64], words: NDArray[np.uint64], max_batch_size: int
) -> NDArray[np.int64]:
    """The indices with the smallest words, as many as the batch may hold."""
    _validate.positive_integer(max_batch_size=max_batch_size)
    if len(drawn) <= max_batch_size:
        return drawn
    return np.sort(drawn[np.argpartition(words, max_batch_size)[:max_batch_size]])


def _part_of(size: int, share: int, shares: int) -> range:
    """Indices of one share: together the shares are all indices, each once."""
    return range(size * share // shares, size * (share + 1) // shares)


_WORD_BYTES: Final = 8
_WORDS_OF_A_BLOCK: Final = 2  # AES has blocks of 16 bytes
_ZEROS: Final = memoryview(bytes(_WORD_BYTES * (_PAIRS_AT_ONCE + _WORDS_OF_A_BLOCK)))
"""What a stream is read by encrypting; kept, as it takes longer to make than to encrypt."""


def _read(stream: bytes, first: int, count: int) -> NDArray[np.uint64]:
    """Words ``first`` to ``first + count`` of the AES-CTR stream with this key: its counter can begin anywhere."""
    block, skipped = divmod(first, _WORDS_OF_A_BLOCK)
    counter = block.to_bytes(_WORD_BYTES * _WORDS_OF_A_BLOCK, "big")
    encryptor = Cipher(algorithms.AES(stream), modes.CTR(counter)).encryptor()
    size = _WORD_BYTES * (skipped + count)
    zeros = _ZEROS[:size] if size <= len(_ZEROS) else bytes(size)
    # Room for the cipher's own block rounding.
    words = np.empty(skipped + count + _WORDS_OF_A_BLOCK, dtype="<u8")
    encryptor.update_into(zeros, words.view(np.uint8).data)
    return words[skipped : skipped + count].astype(np.uint64, copy=False)


def _add_box_muller(
    radii: NDArray[np.uint64],
    angles: NDArray[np.uint64],
    deviation: float,
    first: Tensor,
    second: Tensor,
) -> None:
    """Add the two normal numbers of two words each, times ``deviation``, to two vectors [N]; an odd one ends within a pair.

    Noise of no more digits than a vector lies on a grid: less each sum that may have been, a noisy one would tell by it
    which one was. So it is float64, and rounded where it has been added.
    """
    if native.accepts(first, second) and first.is_contiguous() and second.is_contiguous():
        native.add_normals_of_words(radii, angles, deviation, first, second)
        return
    for piece, noise in zip((first, second), _box_muller(radii, angles), strict=True):
        piece.add_(noise[: len(piece)].to(piece.device), alpha=deviation)


def _box_muller(radii: NDArray[np.uint64], angles: NDArray[np.uint64]) -> Tensor:
    """Two standard normal numbers of two words, float64 [2, N]. Of the radius all bits count: of fewer its tail would have gaps."""
    out = torch.zeros(2, len(radii), dtype=torch.float64)
    if native.is_available():
        native.add_normals_of_words(radii, angles, 1.0, *out)
        return out
    # In (0, 1]: no log(0). The sum is exact where it is small.
    radius = torch.from_numpy(radii.astype(np.float64))
    radius.add_(1).mul_(2.0**-64).log_().mul_(-2).sqrt_()
    # A turn is counted from -pi/4, as the kernel does for which a quarter of a turn is two bits.
    angle = torch.from_numpy((angles >> np.uint64(11)).astype(np.float64))
    angle.mul_(2.0**-52 * math.pi).sub_(math.pi / 4)
    torch.mul(radius, angle.cos(), out=out[0])
    torch.mul(radius, angle.sin_(), out=out[1])
    return out


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


_MERSENNE_WORDS: Final = 624
"""Of 32 bits: the state of torch's generator on the CPU."""
_MERSENNE_STATE: Final = slice(24, 24 + 8 * _MERSENNE_WORDS)
"""Where it is among the bytes of ``get_state``, behind the seed and three counters; each word has eight bytes."""


def _with_state(words: NDArray[np.uint64]) -> torch.Generator:
    """A generator with this whole state; the first word is shown as its seed.

    Of a seed torch uses 32 bits alone, and these can be tried, each of them.
    """
    generator = torch.Generator()
    state = generator.get_state().numpy()
    state[:_WORD_BYTES] = words[:1].view(np.uint8)
    state[_MERSENNE_STATE] = words[1:].view(np.uint32).astype(np.uint64).view(np.uint8)
    return generator.set_state(torch.from_numpy(state))
