"""A table of every architecture of transformers: where `use` works.

    python benchmarks/architectures.py                     # every one, and counts
    python benchmarks/architectures.py --only llama,bert
    python benchmarks/architectures.py --write             # docs/architectures.md

Each is built at a tiny size from its config. "own" is the largest difference of logits after
`use(model, "rope")`, for models with a rotation. "alibi" trains, decodes equal with and without a
cache, or gives a padded row of an encoder as it is alone, and is saved and loaded as it was.
"""

from __future__ import annotations

import re
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch
import transformers
from transformers import DynamicCache
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from pezoo.adapters.stacks import stacks_of
from pezoo.adapters.transformers import load, use

PAGE = Path(__file__).parents[1] / "docs" / "architectures.md"
KINDS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
    "sequence-to-sequence": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
}
MOST = 3_000_000  # parameters of a tiny model: what has more has parts that no size here reaches
OWN, SAME = 1e-5, 1e-4  # largest differences
# Sizes of a config, by the names that configs have for them; what a config lacks is left out.
NAMES = {
    32: "hidden_size d_model n_embd embed_dim dim emb_dim embedding_size",
    48: "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim n_inner dff hidden_dim "
    "ffn_hidden_size d_inner",
    16: "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size q_lora_rank "
    "kv_lora_rank",
    4: "num_hidden_layers n_layer n_layers num_layers num_attention_heads n_head n_heads num_heads "
    "encoder_attention_heads decoder_attention_heads num_experts num_local_experts "
    "n_routed_experts moe_num_experts sliding_window attention_window local_attention "
    "attention_chunk_size",
    2: "encoder_layers decoder_layers num_decoder_layers num_key_value_heads num_kv_heads "
    "num_experts_per_tok experts_per_token",
    8: "head_dim d_kv attention_head_size global_head_dim kv_channels qk_rope_head_dim "
    "qk_nope_head_dim v_head_dim hidden_size_per_layer_input",
    64: "vocab_size vocab_size_per_layer_input max_position_embeddings n_positions n_ctx "
    "max_seq_len max_sequence_length",
    1: "n_shared_experts n_group topk_group first_k_dense_replace bos_token_id "
    "decoder_start_token_id",
    0: "pad_token_id attention_dropout attention_probs_dropout_prob hidden_dropout_prob dropout "
    "dropout_rate attn_pdrop embd_pdrop resid_pdrop activation_dropout embedding_dropout "
    "mlp_dropout hidden_dropout layerdrop encoder_layerdrop decoder_layerdrop",
}
SIZES: dict[str, Any] = {name: size for size, names in NAMES.items() for name in names.split()}
SIZES |= {"eos_token_id": None, "is_decoder": True, "initializer_range": 0.1}
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
SPECIAL: dict[str, dict[str, Any]] = {  # what a config needs beside
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "attn_layer_indices": [1, 3]},
    "bailing_hybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "codegen": {"rotary_dim": 8},
    "cpmant": {"prompt_types": 2, "prompt_length": 4, "segment_types": 4},
    "deepseek_v2": {"num_experts_per_tok": 2, "topk_method": "greedy", "n_shared_experts": 1},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "gemma4_text": {"global_head_dim": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 4},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {
        "mamba_n_heads": 8, "mamba_d_head": 8, "layer_types": ["mamba", "attention"] * 2,
    },
    "hunyuan_v1_dense": {"head_dim": 8}, "hunyuan_v1_moe": {"head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2},
    "lfm2_moe": {"layer_types": ["full_attention", "conv"] * 2, "rope_parameters": ROPE},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "ministral": {"head_dim": 8}, "nemotron": {"num_key_value_heads": 2, "head_dim": 8},
    "prophetnet": {"num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads":
                   4, "num_decoder_attention_heads": 4},
    "pegasus_x": {"block_size": 4, "num_global_tokens": 2},
    "roc_bert": {"enable_pronunciation": False, "enable_shape": False},
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"layer_types": ["mamba", "hybrid"] * 2},
    "zaya": {"num_experts_per_tok": 1},
    "esm": {"position_embedding_type": "absolute", "mask_token_id": 3, "emb_layer_norm_before":
            True},
    "hrm_text": {"H_cycles": 1, "L_cycles": 1},
}  # fmt: skip


NOTES = {
    "youtu": "without an encoding too: transformers loads its trained, tied embeddings otherwise "
    "than it saved them"
}


class Row(NamedTuple):
    """Findings on an architecture. `trouble` is why it does not work, or was not built."""

    kind: str
    name: str
    cls: str
    built: bool
    own: str = ""  # "yes", or a difference; "-" without a rotation
    alibi: str = ""
    trouble: str = ""

    @property
    def works(self) -> bool:
        return self.alibi == "yes"


def config_of(name: str, kind: str) -> Any:
    """Return a tiny config. Errors: those of the config for sizes that do not fit."""
    cls = CONFIG_MAPPING[name]
    plain = cls()
    sizes = {key: _like(_get(plain, key), x) for key, x in SIZES.items() if _has(cls, plain, key)}
    if kind != "causal":
        sizes.pop("is_decoder", None)
    heads = {"num_key_value_heads": "num_attention_heads"}
    for key, other in heads.items():
        if key in sizes and _get(plain, key) == _get(plain, other):
            sizes[key] = 4
    return cls(**sizes | SPECIAL.get(name, {}))


def _like(known: Any, size: Any) -> Any:
    return float(size) if isinstance(known, float) else size


def _has(cls: Any, config: Any, key: str) -> bool:
    if isinstance(getattr(cls, key, None), property):
        return False
    return key.endswith("token_id") or _get(config, key) is not None


def _get(config: Any, key: str) -> Any:
    try:
        return getattr(config, key, None)
    except Exception:  # of a config whose layers differ
        return 1


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a block that takes longer."""

    def late(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def build(name: str, cls: str, kind: str) -> Any:
    """Return a tiny model. Errors: ValueError for one that is not tiny."""
    config = config_of(name, kind)
    with torch.device("meta"):
        size = sum(p.numel() for p in getattr(transformers, cls)(config).parameters())
    if size > MOST:
        raise ValueError(f"has {size:,} parameters at the sizes of this script")
    torch.manual_seed(0)
    return getattr(transformers, cls)(config).eval()


def logits(model: Any, ids: torch.Tensor, kind: str, **options: Any) -> torch.Tensor:
    """Return a model's logits; a sequence-to-sequence model gets the ids on both sides."""
    if kind == "sequence-to-sequence":
        options["decoder_input_ids"] = ids
    elif kind == "causal":
        options.setdefault("use_cache", False)
    found: torch.Tensor = model(input_ids=ids, **options).logits
    return found


def trains(model: Any, ids: torch.Tensor, kind: str) -> bool:
    """Return True if a few steps lower the loss."""
    model.train()
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(4):
        got = logits(model, ids, kind)
        loss = torch.nn.functional.cross_entropy(got.flatten(0, 1), ids.flatten())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(loss))
    model.eval()
    return losses[-1] < losses[0]


@torch.no_grad()
def decodes(model: Any, ids: torch.Tensor, kind: str) -> float:
    """Return the largest difference with and without a cache, or of a padded row of an encoder."""
    if kind == "masked":
        padded = torch.nn.functional.pad(ids[:1], (0, 3), value=0)
        mask = (torch.arange(padded.shape[1]) < ids.shape[1]).long()[None]
        got = logits(model, padded, kind, attention_mask=mask)[:, : ids.shape[1]]
        return float((got - logits(model, ids[:1], kind)).abs().max())
    want = logits(model, ids, kind)
    if kind == "causal":
        first = model(input_ids=ids[:, :6], use_cache=True)
        cache = getattr(first, "past_key_values", None)
        if cache is None:  # not returned by every model
            cache = DynamicCache(config=model.config)
            first = model(input_ids=ids[:, :6], past_key_values=cache, use_cache=True)
        rest = [first.logits]
        for i in range(6, ids.shape[1]):
            rest.append(model(input_ids=ids[:, i : i + 1], past_key_values=cache).logits)
        return float((torch.cat(rest, 1) - want).abs().max())
    first = model(input_ids=ids, decoder_input_ids=ids[:, :6])
    later = model(
        encoder_outputs=model.get_encoder()(input_ids=ids, return_dict=True),
        decoder_input_ids=ids[:, 6:], past_key_values=first.past_key_values,
    )  # fmt: skip
    return float((torch.cat([first.logits, later.logits], 1) - want).abs().max())


@torch.no_grad()
def reloads(model: Any, ids: torch.Tensor, kind: str) -> float:
    """Return the largest difference of a model that is saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = load(folder).eval()
    return float((logits(again, ids, kind) - logits(model, ids, kind)).abs().max())


def check(kind: str, name: str, cls: str, seconds: int = 60) -> Row:
    """Return what works with an architecture."""
    ids = torch.randint(4, 60, (2, 10), generator=torch.Generator().manual_seed(1))
    row = Row(kind, name, cls, built=False)
    try:
        with time_limit(seconds):
            model = build(name, cls, kind)
            with torch.no_grad():
                want = logits(model, ids, kind)
            if not want.isfinite().all():
                raise ValueError("logits are not finite")
            row = row._replace(built=True)
            row = row._replace(own=_own(name, cls, kind, ids, want))
            use(model, "alibi")
            with torch.no_grad():
                if not (logits(model, ids, kind) - want).abs().max() > SAME:
                    return row._replace(alibi="changes nothing")
            apart = decodes(model, ids, kind)
            if not apart < SAME:
                return row._replace(alibi=f"cache {apart:.0e}")
            if not trains(model, ids, kind):
                return row._replace(alibi="does not train")
            apart = reloads(model, ids, kind)
            return row._replace(alibi="yes" if apart < 3e-6 else f"loaded {apart:.0e}")
    except Exception as error:
        lines = f"{type(error).__name__}: {error}".replace("ValueError: ", "").split("\n")
        return row._replace(trouble=re.sub(r"\s+", " ", lines[0])[:240])


def _own(name: str, cls: str, kind: str, ids: torch.Tensor, want: torch.Tensor) -> str:
    model = build(name, cls, kind)
    if not any(stack.rotary() for stack in stacks_of(model)):
        return "-"
    with torch.no_grad():
        apart = float((logits(use(model, "rope"), ids, kind) - want).abs().max())
    return "yes" if apart <= OWN else f"{apart:.0e}"


def architectures() -> list[tuple[str, str, str]]:
    """Return every (kind, model type, class) of transformers' mappings."""
    return [
        (kind, name, cls)
        for kind, mapping in KINDS.items()
        for name, cls in sorted(mapping._model_mapping.items())
    ]


def counts(rows: list[Row]) -> str:
    """Return counts as lines of a table."""
    lines = [
        "| mapping | architectures | built | alibi works | own rotation kept |",
        "|---" * 5 + "|",
    ]
    for kind in KINDS:
        own = [row for row in rows if row.kind == kind]
        built = [row for row in own if row.built]
        turns = [row for row in built if row.own not in ("-", "")]
        kept = sum(row.own == "yes" for row in turns)
        works = sum(row.works for row in built)
        lines.append(f"| {kind} | {len(own)} | {len(built)} | {works} | {kept} of {len(turns)} |")
    return "\n".join(lines)


def page(rows: list[Row]) -> str:
    """Return docs/architectures.md."""
    lines = [
        "# Architectures of transformers",
        "",
        "What `use` can do with each, from `python benchmarks/architectures.py --write`, with "
        f"transformers {transformers.__version__}. Each was built at a tiny size. *own* says that "
        '`use(model, "rope")` keeps the logits to 1e-5 (- without a rotation). *alibi* says that '
        '`use(model, "alibi")` trains, decodes equal with and without a cache to 1e-4 (encoders: '
        "equal with padding), and is loaded as it was saved.",
        "",
        counts(rows),
    ]
    for kind in KINDS:
        lines += ["", f"## {kind.capitalize()}", "", "| model_type | own | alibi | else |"]
        lines += ["|---|---|---|---|"]
        for row in rows:
            if row.kind == kind:
                why = row.trouble if row.built else f"not built here: {row.trouble}"
                told = why.replace("|", "/") if row.trouble else NOTES.get(row.name, "")
                cells = row.name, row.own, row.alibi, told
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--only", default="", help="Model types, separated by commas.")
@click.option("--seconds", default=60, show_default=True, help="Limit for one architecture.")
@click.option("--write", is_flag=True, help="Write docs/architectures.md.")
def main(only: str, seconds: int, write: bool) -> None:
    """Check architectures, print what was found and counts."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity(50)
    transformers.logging.disable_progress_bar()
    rows = []
    for kind, name, cls in architectures():
        if only and name not in only.split(","):
            continue
        began = time.time()
        row = check(kind, name, cls, seconds)
        rows.append(row)
        told = row.trouble or f"own {row.own}, alibi {row.alibi}"
        click.echo(f"{kind:8.8} {name:22} {row.built} {time.time() - began:5.1f} s  {told}")
    click.echo(counts(rows))
    if write:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
