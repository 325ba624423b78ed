"""GPT-2-style decoders over bytes: of one core, and of one GPU."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

try:
    import equinox as eqx
    import optax  # noqa: F401  (asked for here, so that one message names both)
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'{error}; training needs the extra: pip install "bayeslaw[train]"'
    ) from None


class Layout(NamedTuple):
    """What models of all sizes share; vocabulary and context in bytes."""

    vocabulary: int = 256
    context: int = 128
    layers: int = 2
    heads: int = 2


LAYOUT = Layout()


class Size(NamedTuple):
    """A model, and what one step of it is.

    Parameters
    ----------
    width
        Length of a token's vector.
    batch
        Windows of a step.
    precision
        In which gradients are computed; weights are kept in float32.
    """

    width: int
    batch: int = 4  # larger batches starve small models of steps
    precision: str = "float32"


# Named by their parameters: those of one core, and those of a GPU, which small batches
# would leave idle.
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
}


def _linear(inputs: int, outputs: int, scale: float, key: Array) -> eqx.nn.Linear:
    """Weights of shape (output, input), of sd ``scale / sqrt(inputs)``; no bias."""
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
    """Causal attention (Vaswani 2017, eq. 1), all of shape (byte, head, width).

    On one core a fifth faster than `jax.nn.dot_product_attention`.
    """
    scores = jnp.einsum("thd,shd->hts", q, k, preferred_element_type=jnp.float32)
    scores = scores * q.shape[-1] ** -0.5
    is_past = jnp.tril(jnp.ones(scores.shape[1:], bool))
    shares = jax.nn.softmax(jnp.where(is_past[None], scores, -1e9), axis=-1)
    return jnp.einsum("hts,shd->thd", shares.astype(v.dtype), v)


def _embedded(weight: Array, text: Array) -> Array:
    """Rows of the embedding: shape (byte,), integers, to (byte, width)."""
    if jax.default_backend() == "cpu":
        return weight[text]
    # A GPU adds up the gradient of a look-up slowly, that of a product fast.
    return jax.nn.one_hot(text, LAYOUT.vocabulary, dtype=weight.dtype) @ weight


class Block(eqx.Module):
    """Causal self-attention and a two-layer perceptron; no biases.

    Each follows a norm and is added to the stream.
    """

    norm_attention: eqx.nn.LayerNorm
    queries_keys_values: eqx.nn.Linear
    attended: eqx.nn.Linear
    norm_hidden: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, width: int, key: Array) -> None:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        # Two additions a layer: so scaled, the stream's variance does not grow with
        # depth (Radford 2019, section 2.3).
        into_stream = (2 * LAYOUT.layers) ** -0.5
        self.norm_attention, self.norm_hidden = _norm(width), _norm(width)
        self.queries_keys_values = _linear(width, 3 * width, 1.0, k1)
        self.attended = _linear(width, width, into_stream, k2)
        self.up = _linear(width, 4 * width, 1.0, k3)
        self.down = _linear(4 * width, width, into_stream, k4)

    def __call__(self, x: Array) -> Array:
        """Shape (byte, width) to the same."""
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
    """Bytes to next-byte logits; the output shares the embedding's weights."""

    embedding: eqx.nn.Embedding
    position: Array
    blocks: list[Block]
    norm: eqx.nn.LayerNorm

    def __init__(self, width: int, key: Array) -> None:
        k1, k2, *block_keys = jax.random.split(key, 2 + LAYOUT.layers)
        # With the usual sd of .02 it learns late, and seeds differ.
        normal = jax.random.normal(k1, (LAYOUT.vocabulary, width), jnp.float32)
        embedding = width**-0.5 * normal
        self.embedding = eqx.nn.Embedding(weight=embedding)
        self.position = 0.02 * jax.random.normal(
            k2, (LAYOUT.context, width), jnp.float32
        )
        self.blocks = [Block(width, k) for k in block_keys]
        self.norm = _norm(width)

    def __call__(self, text: Array) -> Array:
        """Logits of the next byte: shape (byte,), integers, to (byte, vocabulary)."""
        embedding = self.embedding.weight
        x = _embedded(embedding, text) + self.position[: len(text)]
        for block in self.blocks:
            x = block(x)
        normed = jax.vmap(self.norm)(x)
        return jnp.matmul(normed, embedding.T, preferred_element_type=jnp.float32)


def loss(model: Decoder, windows: Array) -> Array:
    """Mean cross-entropy of each byte given those before it, nats per byte.

    Windows of shape (window, byte).
    """
    # log p = logit of the byte that came - log sum of exp of all logits
    logits = jax.vmap(model)(windows[:, :-1])  # (window, byte, vocabulary)
    of_next_byte = jnp.take_along_axis(logits, windows[:, 1:, None], -1)[..., 0]
    scores = jax.nn.logsumexp(logits, axis=-1) - of_next_byte
    return scores.mean()


@cache
def parameters(size: str) -> int:
    """Trained numbers of a size, the shared embedding counted once."""
    shapes = eqx.filter_eval_shape(Decoder, SIZES[size].width, jax.random.key(0))
    # Shapes only: nothing is allocated for a count.
    leaves = jax.tree.leaves(shapes)
    return sum(leaf.size for leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct))
