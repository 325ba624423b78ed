"""Know columns by their names: words, units, prefixes, and usual names."""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

# how W&B, MLflow and TensorBoard name columns in their tables
EXPORTED = re.compile(r"(?:config|summary|params|metrics|hparam|tags)[./](.+)")
# the unit in brackets at the end of a name: tokens (B), Trainingstoken [Mrd.]
BRACKETS = re.compile(r"^(.*\S)\s*[\[(]([^\[\]()]*)[\])]\s*$")
# units that the first or last word of a name may state, as they are written in an
# expression; and their factors
FACTORS = {
    **dict.fromkeys(("k", "tsd"), "*1e3"),
    **dict.fromkeys(("m", "million", "millions", "mio", "mill"), "*1e6"),
    **dict.fromkeys(("b", "bn", "billion", "billions", "bil", "mrd", "md"), "*1e9"),
    **dict.fromkeys(("pct", "percent", "%"), "/100"),
}
UNITS = {"": 1.0, "*1e3": 1e3, "*1e6": 1e6, "*1e9": 1e9, "/100": 0.01}

# -- what words say of a column --------------------------------------------------------


def _split_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


TOKENS = _split_set("tokens tok toks")
PERPLEXITY = _split_set("ppl perplexity")
BITS = _split_set("bpb bits bpt")
OF_A_TOKEN = TOKENS | _split_set("token bpt")  # of bits: not of a byte
EVALUATION = _split_set("eval val valid validation test heldout")
SCORES = _split_set("acc accuracy score f em bleu rate lr")
OF_LOSSES = PERPLEXITY | {"loss"}
# measures of a loss, from the likeliest, and words that the names of others have
MEASURES = (
    ({"loss"}, {"per"}),
    (PERPLEXITY, {"per"}),
    (BITS, set[str]()),
    (EVALUATION, SCORES),
)
TRAINING = _split_set("train training")
START = _split_set("before initial start base init")
# beside measured losses: those of the start, auxiliary ones that balance experts, weights
NOT_MEASURED = _split_set(
    "before initial start init aux balance scale weight coef coefficient mask"
)
# corpora of pre-training: a loss on one is guessed to be the source's
CORPORA = _split_set(
    "en eng english pretrain pretraining general old base orig pile web fineweb dclm "
    "slimpajama redpajama dolma"
)
SHARES = _split_set(
    "share fraction frac mix pct percent % weight proportion prop ratio"
)
PLANNED = _split_set("planned target max budget scheduled goal")
# the tokens of a checkpoint before the run
PRETRAINING = _split_set("init initial pretrain pretrained pretraining pt vortraining")
# counts of tokens that are not those a run was trained on
OF_A_STEP = _split_set("batch step update context seq sequence length vocab sec")
OF_A_RATIO = _split_set("per ratio tpp ptpp")
# tokens per parameter are not tokens
OTHERS = _split_set("before per")
OF_A_PASS = OTHERS | OF_A_STEP | _split_set("image sample forward inference")


# measured of a run, or what tells repeated runs apart: no settings
NOT_SET = _split_set(
    "accuracy ppl perplexity bpb hours seconds seed seeds trial replicate split date host "
    "node"
)

# -- whole names, as people and trackers write them ------------------------------------


def _split_names(names: str) -> tuple[str, ...]:
    return tuple(names.split(", "))


# in small letters with spaces for signs; index and unnamed: 0 are the text labels of a
# table's rows, in a DataFrame and in its CSV
RUN = _split_names(
    "run name, run id, runid, runname, run, wandb run, name, id, index, unnamed: 0"
)
# these name runs only if the rows of each name are the points of one curve
PERHAPS_RUN = _split_names(
    "experiment, exp, exp name, experiment name, exp id, trial, job, trial id, job id, "
    "model, model name, curve"
)
# the others by their last part
STEP = _split_names("step, _step, global_step, steps, train_steps")
# the step that a training logs itself
OWN_STEP = ("train/global_step", "trainer/global_step", "global_step")
TOKENS_SEEN = _split_names(
    "tokens, num_tokens, n_tokens, total_tokens, tokens_seen, num_input_tokens_seen, "
    "num_tokens_seen, total_tokens_seen, consumed_tokens, tokens_consumed, train_tokens, "
    "trained_tokens"
)
# settings whose product is the tokens of one optimizer step
PER_STEP = _split_names(
    "tokens_per_step, tokens_per_batch, global_batch_tokens, batch_tokens, "
    "tokens_per_update, batch_size_tokens"
)
WHOLE_BATCH = _split_names(
    "global_batch_size, total_batch_size"
)  # of all devices, accumulated
BATCH = WHOLE_BATCH + _split_names(
    "per_device_train_batch_size, train_batch_size, micro_batch_size, batch_size"
)
# without `max_length`, which in model configurations is the length of generated text
LENGTH = _split_names(
    "max_seq_length, max_seq_len, seq_length, seq_len, sequence_length, context_length, "
    "block_size"
)
ACCUMULATED = _split_names(
    "gradient_accumulation_steps, grad_accum_steps, accumulation_steps"
)
DEVICES = _split_names(
    "world_size, num_processes, n_gpus, num_gpus, n_gpu, num_devices"
)

# -- usual names of the schema's columns -----------------------------------------------


class Spelling(NamedTuple):
    """Usual names of a column of the schema.

    ``ours``: the column of the schema, or ``pretrain_tokens``, of which ``ptpp`` is made.
    ``called``: usual names, with commas between. A column is called so if it has all
    words of one. The first name that one column has decides, of the first spelling that
    finds a column. ``foreign``: words that the column's name does not have. ``vague``: of
    these names a column has no other words than usual ones and units: a batch has a size,
    too. ``between``: the least and the largest number that the column may hold, in its
    name's unit. ``without_steps``: whether it counts only in a table that has no column
    of steps. ``is_rival``: whether a column is only told as another candidate.
    """

    ours: str
    called: str
    foreign: frozenset[str] = OTHERS
    vague: frozenset[str] = frozenset()
    between: tuple[float, float] = (-inf, inf)
    without_steps: bool = False
    is_rival: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return _split_names(self.called)


_NOT_SEEN = OTHERS | PRETRAINING | OF_A_STEP | {"unique"}
_NOT_SHARE = OTHERS | TOKENS | PERPLEXITY | EVALUATION | {"loss"}
_SOURCE = [f"{a} {b}" for a in ("old", "general", "source") for b in ("data", *SHARES)]
SPELLINGS = (
    Spelling("N", "active params, active parameters", OTHERS | {"total", "embedding"}),
    Spelling(
        "N",
        "params, parameters, model size, model, size",
        vague=_split_set("model size"),
    ),
    Spelling("N", "size", OTHERS | OF_A_STEP, is_rival=True),
    Spelling(
        "D",
        "total tokens, tokens seen, tokens, adapt tokens, train tokens, tok, toks",
        _NOT_SEEN | PLANNED,
    ),
    # what a run was meant to see, where what it saw is not told
    Spelling("D", "tokens, token", _NOT_SEEN, without_steps=True),
    Spelling("U", "unique tokens"),
    Spelling("replay", "replay, mix, source share, mixture"),
    Spelling("replay", ", ".join(sorted(_SOURCE)), _NOT_SHARE, between=(0, 100)),
    Spelling(
        "ptpp",
        "tpp, ptpp, tokens per parameter, tokens per param",
        _split_set("before"),
    ),
    Spelling("pretrain_tokens", ", ".join(f"{w} tokens" for w in sorted(PRETRAINING))),
    Spelling(
        "pretrain_tokens",
        ", ".join(sorted(PRETRAINING)),
        OTHERS | _split_set("params parameters model size flops"),
        between=(1e8, 1e15),
    ),
    Spelling("cost", "gpu hours, gpu hour, gpuh", OF_A_PASS),
    # a forward pass has fewer FLOPs than a run
    Spelling(
        "cost", "flops", OF_A_PASS | _split_set("g t gflop tflop"), between=(1e12, inf)
    ),
)


# -- the words of a name ---------------------------------------------------------------


def is_setting(name: str) -> bool:
    """Tell whether a tracker's prefix says that a column is a setting."""
    return re.fullmatch(r"(?:config|params|hparam)[./].+", name) is not None


def name_words(name: str) -> list[str]:
    """Split a column's name into words, without a tracker's prefix."""
    exported = EXPORTED.fullmatch(name)
    return _split_words(exported[1] if exported else name)


def _split_words(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|%", text)]


def last_part(name: object) -> str:
    """Take the part after the last sign, in small letters: ``loss`` of ``eval/loss``."""
    return re.split(r"[/.]", str(name))[-1].lower()


def without_unit(name: str) -> str:
    """Drop the unit in brackets at the end of a column's name."""
    return BRACKETS.sub(r"\1", name)


def named_words(name: str) -> list[str]:
    """Split a column's name into words, without its unit in brackets."""
    return name_words(without_unit(name))


def likeness(words: list[str], wanted: list[str]) -> int:
    """Tell how well a name has the wanted words: 3 if it begins with them, 2 if it has
    them, 1 if it has each in the plural or in a compound (``trainingstoken``), else 0.
    """
    if words[: len(wanted)] == wanted:
        return 3
    if set(wanted) <= set(words):
        return 2

    def has(one: str) -> bool:
        stem = one.removesuffix("s")
        ends = {word.removesuffix("s") for word in words if len(stem) > 3}
        return one in words or any(end.endswith(stem) for end in ends)

    return int(all(map(has, wanted)))


def quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def unit_of_name(name: str) -> str:
    """Find the factor that a name's unit states, in brackets or as a word."""
    bracketed = BRACKETS.fullmatch(name)
    words = named_words(name)
    ends = [words[-1], words[0]] if len(words) > 1 else []
    stated = [*(_split_words(bracketed[2]) if bracketed else []), *ends]
    return next((FACTORS[word] for word in stated if word in FACTORS), "")


def in_nats(name: str) -> str:
    """Write a column of losses in nats: ln of a perplexity, bits times ln 2."""
    words = {*name_words(name)}
    if words & PERPLEXITY:
        return f"ln({name})"
    return f"{name}*0.6931" if words & BITS else name


def in_nats_per_token(theirs: str, ours: str) -> str:
    """Say which bits a column is by its name, and its mapping to nats per token."""
    meaning = f"and {ours} is nats per token: write --column "
    if {*name_words(theirs)} & OF_A_TOKEN:
        return f'bits per token, {meaning}"{ours}={theirs}*0.6931"'
    return (
        "bits per byte, if not per token (then without the last factor), "
        f'{meaning}"{ours}={theirs}*0.6931*BYTES_PER_TOKEN" with your bytes per token (a '
        "number or a column)"
    )
