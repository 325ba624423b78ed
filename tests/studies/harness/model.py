"""Define decoders over bytes in the style of GPT-2, small enough for a core or a GPU."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

try:
    import equinox as eqx
    import optax  # noqa: F401  (imported here, so that one message is about both)
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'{error}; training needs the extra: pip install "bayeslaw[train]"'
    ) from None


class Layout(NamedTuple):
    """Dimensions that models of all sizes share; vocabulary and context in bytes."""

    vocabulary: int = 256
    context: int = 128
    layers: int = 2
    heads: int = 2


LAYOUT = Layout()


class Size(NamedTuple):
    """Size of a model, and settings of its training steps.

    Parameters
    ----------
    width
        Length of a token's vector.
    batch
        Windows of text in each training step.
    precision
        Type of the numbers in which gradients are computed. Weights are float32.
    """

    width: int
    batch: int = 4  # with larger batches small models would take too few steps
    precision: str = "float32"


# The names are numbers of parameters. The first five sizes train on one core. The
# others train on a GPU, with larger batches, because small ones would leave it idle.
SIZES = {
    "12k": Size(16),
    "23k": Size(24),
    "54k": Size(40),
    "123k": Size(64),
    "259k": Size(96),
    "0.26M": Size(96, 32, "bfloat16"),
    "0.55M": Size(144, 32, "bfloat16"),
    "0.96M": Size(192, 32, "bfloat16"),
    "2.1M": Size(288, 32, "bfloat16"),
    "4.0M": Size(400, 32, "bfloat16"),
    "8.3M": Size(576, 32, "bfloat16"),
}


def _linear(inputs: int, outputs: int, scale: float, key: Array) -> eqx.nn.Linear:
    """Make a layer without bias, its weights normal with sd ``scale / sqrt(inputs)``."""
    layer = eqx.nn.Linear(
        inputs,
        outputs,
        use_bias=False,
        dtype=jnp.float32,
        key=key,
    )
    normal = jax.random.normal(key, (outputs, inputs), jnp.float32)
    weight = scale * inputs**-0.5 * normal
    return eqx.tree_at(lambda m: m.weight, layer, weight)


def _norm(width: int) -> eqx.nn.LayerNorm:
    return eqx.nn.LayerNorm(width, use_bias=False, dtype=jnp.float32)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Compute causal attention (Vaswani 2017, eq. 1); all arrays have shape
    (byte, head, width).

    On one core this is a fifth faster than `jax.nn.dot_product_attention`.
    """
    scores = jnp.einsum("thd,shd->hts", q, k, preferred_element_type=jnp.float32)
    scores = scores * q.shape[-1] ** -0.5
    is_past = jnp.tril(jnp.ones(scores.shape[1:], bool))
    shares = jax.nn.softmax(jnp.where(is_past[None], scores, -1e9), axis=-1)
    return jnp.einsum("hts,shd->thd", shares.astype(v.dtype), v)


def _embedded(weight: Array, text: Array) -> Array:
    """Look up rows of the embedding: integers of shape (byte,) to (byte, width)."""
    if jax.default_backend() == "cpu":
        return weight[text]
    # On a GPU the gradient of a look-up is slow, and the gradient of a product is fast.
    return jax.nn.one_hot(text, LAYOUT.vocabulary, dtype=weight.dtype) @ weight


class Block(eqx.Module):
    """Causal self-attention and a two-layer perceptron, without biases.

    The input of each is normalised, and its output is added to the residual stream.
    """

    norm_attention: eqx.nn.LayerNorm
    queries_keys_values: eqx.nn.Linear
    attended: eqx.nn.Linear
    norm_hidden: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, width: int, key: Array) -> None:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        # Each layer adds to the residual stream twice. Scaled like this, the variance
        # of the stream does not grow with depth (Radford 2019, section 2.3).
        into_stream = (2 * LAYOUT.layers) ** -0.5
        self.norm_attention, self.norm_hidden = _norm(width), _norm(width)
        self.queries_keys_values = _linear(width, 3 * width, 1.0, k1)
        self.attended = _linear(width, width, into_stream, k2)
        self.up = _linear(width, 4 * width, 1.0, k3)
        self.down = _linear(4 * width, width, into_stream, k4)

    def __call__(self, x: Array) -> Array:
        """Transform the residual stream, shape (byte, width)."""
        normed = jax.vmap(self.norm_attention)(x)
        heads = jax.vmap(self.queries_keys_values)(normed)
        by_kind = heads.reshape(len(x), 3, LAYOUT.heads, -1)
        q, k, v = jnp.moveaxis(by_kind, 1, 0)
        attended = attention(q, k, v).reshape(x.shape)
        x = x + jax.vmap(self.attended)(attended)

        normed = jax.vmap(self.norm_hidden)(x)
        hidden = jax.nn.gelu(jax.vmap(self.up)(normed))
        return x + jax.vmap(self.down)(hidden)


class Decoder(eqx.Module):
    """Decoder from bytes to logits of the next byte. The output layer shares its
    weights with the embedding.
    """

    embedding: eqx.nn.Embedding
    position: Array
    blocks: list[Block]
    norm: eqx.nn.LayerNorm

    def __init__(self, width: int, key: Array) -> None:
        k1, k2, *block_keys = jax.random.split(key, 2 + LAYOUT.layers)
        # With the usual sd of .02 models learn late, and seeds differ much.
        normal = jax.random.normal(k1, (LAYOUT.vocabulary, width), jnp.float32)
        embedding = width**-0.5 * normal
        self.embedding = eqx.nn.Embedding(weight=embedding)
        self.position = 0.02 * jax.random.normal(
            k2, (LAYOUT.context, width), jnp.float32
        )
        self.blocks = [Block(width, k) for k in block_keys]
        self.norm = _norm(width)

    def __call__(self, text: Array) -> Array:
        """Compute logits of the next byte: integers of shape (byte,) to
        (byte, vocabulary).
        """
        embedding = self.embedding.weight
        x = _embedded(embedding, text) + self.position[: len(text)]
        for block in self.blocks:
            x = block(x)
        normed = jax.vmap(self.norm)(x)
        return jnp.matmul(normed, embedding.T, preferred_element_type=jnp.float32)


def loss(model: Decoder, windows: Array) -> Array:
    """Compute the mean cross-entropy of a byte given the bytes before it, nats per
    byte.

    ``windows`` has shape (window, byte).
    """
    # -log p(next byte) = log(sum of exp(logits)) - logit of the next byte
    logits = jax.vmap(model)(windows[:, :-1])  # (window, byte, vocabulary)
    of_next_byte = jnp.take_along_axis(logits, windows[:, 1:, None], -1)[..., 0]
    scores = jax.nn.logsumexp(logits, axis=-1) - of_next_byte
    return scores.mean()


@cache
def parameters(size: str) -> int:
    """Count the trained parameters of a size; the shared embedding counts once."""
    shapes = eqx.filter_eval_shape(Decoder, SIZES[size].width, jax.random.key(0))
    # The leaves are shapes only, so that counting allocates no weights.
    leaves = jax.tree.leaves(shapes)
    return sum(leaf.size for leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct))
