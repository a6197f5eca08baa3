"""The backbone is the same for every encoding, and streams what it computes in full."""

import pytest
import torch
import transformers

import pezoo
from experiment.config import Model
from harness import tasks
from harness.model.transformer import Transformer, attention_mask, shape_of
from pezoo.adapters import CAUSAL
from pezoo.adapters.layer import Cache
from pezoo.base import Context

torch.set_num_threads(1)
MODEL = Model(layers=2, heads=2, width=16, vocab=12)
PRISM = "prism_2025(cursors=2,d_pe=8,hidden=6)"
HOOKS = (  # one encoding for each kind of hook
    *("learned", "rope", "relative", "path", "geometric", "fox", "coupled", "bipe"),
    *("ideal_sh", "lbpe_sh", "randomized:rope", "layers", PRISM),
)


def decoder(text, seed=0, model=MODEL, attention="auto"):
    encoding = pezoo.make(text, shape_of(model, 16))
    prf, told = tasks.make("copy(aligned=4)").prf, tasks.make("addition_coupled").fields
    return Transformer(model, encoding, seed, attention, task_prf=prf, task_fields=told).eval()


def test_one_backbone_for_all_encodings():
    texts = (PRISM if name == "prism" else name for name in pezoo.names())
    hashes = {text: decoder(text).backbone_hash() for text in texts}
    assert len(set(hashes.values())) == 1, hashes
    assert decoder("rope", seed=1).backbone_hash() not in hashes.values()
    torch.manual_seed(99)  # nothing is drawn from the global generator
    assert decoder("nope").backbone_hash() == hashes["nope"]


def test_the_hash_sees_the_backbone_alone():
    model = decoder("learned")
    before = model.backbone_hash()
    with torch.no_grad():
        model.encoding.table.add_(1)
        assert model.backbone_hash() == before
        model.blocks[1].up.weight[0, 0] += 1e-3
    assert model.backbone_hash() != before


def run(model, ids, pos, chunks=None):
    fields = {"scale": torch.tensor([4]), "generator": torch.Generator().manual_seed(3)}
    with torch.no_grad():
        if chunks is None:
            return model(ids, pos, **fields)
        cache, outs, end = Cache(length=ids.shape[1]), [], 0
        for size in chunks:
            start, end = end, end + size
            here = slice(start, end)
            outs.append(model(ids[:, here], pos[:, here], cache=cache, **fields))
        return torch.cat(outs, 1)


@pytest.mark.parametrize("text", ["rope", "relative", PRISM])
@pytest.mark.parametrize("last", [1, 4, 9])
def test_the_last_logits_alone(text, last):
    model = decoder(text)
    ids = torch.randint(12, (2, 9), generator=torch.Generator().manual_seed(0))
    whole = model(ids, torch.arange(9)[None])
    torch.testing.assert_close(model(ids, torch.arange(9)[None], last=last), whole[:, -last:])


@pytest.mark.parametrize("text", HOOKS)
@pytest.mark.parametrize("padded", [False, True])
def test_streaming_is_the_full_pass(text, padded):
    model = decoder(text).double()
    ids = torch.randint(12, (2, 9), generator=torch.Generator().manual_seed(0))
    pos = torch.arange(9)[None]
    if padded:
        pos = torch.stack([pos[0], (pos[0] - 2).clamp(min=-1)])
    full = run(model, ids, pos)
    assert full.shape == (2, 9, 12)
    real = (pos >= 0).expand(2, -1)
    for chunks in ([1] * 9, [4, 1, 4], [9]):
        torch.testing.assert_close(
            run(model, ids, pos, chunks)[real], full[real], atol=1e-6, rtol=1e-6
        )


def test_tied_weights_are_one_tensor():
    tied = decoder("nope")
    assert tied.unembedding is None
    names = [name for name, _ in tied.named_parameters() if "embedding" in name]
    assert names == ["embedding.weight"]
    ids, pos = torch.tensor([[1, 2]]), torch.arange(2)[None]
    tied(ids, pos).sum().backward()
    assert (tied.embedding.weight.grad[5] != 0).any()  # as unembedding, though never read as input
    untied = decoder("nope", model=MODEL.model_copy(update={"tie_embeddings": False}))
    assert untied.unembedding.weight.data_ptr() != untied.embedding.weight.data_ptr()
    assert run(untied, ids, pos).shape == (1, 2, 12)


@pytest.mark.parametrize("text", ["abacus", "bipe", "coupled"])
def test_tables_start_at_the_size_of_the_tokens(text):
    model = decoder(text, model=MODEL.model_copy(update={"width": 64, "vocab": 512}))
    tokens = model.embedding.weight * 64**0.5  # as the blocks get them
    assert model.encoding.table.std().item() == pytest.approx(tokens.std().item(), rel=0.05)


@pytest.mark.parametrize("residual", ["serial", "parallel"])
def test_residuals_by_hand(residual):
    """One block of one head: the MLP reads the block's input, or what attention has made of it."""
    sizes = {"layers": 1, "heads": 1, "width": 8, "vocab": 16, "residual": residual}
    model = decoder("nope", model=Model.model_validate(MODEL.model_dump() | sizes)).double()
    ids, pos = torch.randint(16, (2, 5)), torch.arange(5)[None]
    with torch.no_grad():
        (block,) = model.blocks
        x = model.embedding(ids) * 8**0.5
        q, k, v = block.qkv(block.norm1(x)).chunk(3, -1)
        scores = (q @ k.mT / 8**0.5).masked_fill(~torch.ones(5, 5).tril().bool(), -torch.inf)
        mixed = block.out(scores.softmax(-1) @ v)
        seen = x if residual == "parallel" else x + mixed
        fed = block.down(block.activation(block.up(block.norm2(seen))))
        want = torch.nn.functional.linear(model.norm(x + mixed + fed), model.embedding.weight)
        torch.testing.assert_close(model(ids, pos), want)


def test_rms_swiglu_and_qk_norm_are_qwen3s():
    changes = {"norm": "rms", "activation": "swiglu", "qk_norm": True, "attention_bias": False}
    ours = decoder("rope", model=Model.model_validate(MODEL.model_dump() | changes))
    theirs = transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=12,
            hidden_size=16,
            intermediate_size=42,
            head_dim=8,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            tie_word_embeddings=False,
        )
    )
    own, weights = dict(ours.named_parameters()), {}
    with torch.no_grad():
        for name, weight in own.items():
            if "norm" in name:  # they begin as ones
                weight.add_(0.1 * torch.randn(weight.shape))
        pairs = (
            torch.arange(8).reshape(4, 2).T.flatten()
        )  # they turn pairs (c, c + 4), rope (2c, 2c + 1)
        for i in range(2):
            block = {
                n.removeprefix(f"blocks.{i}."): p for n, p in own.items() if f"blocks.{i}." in n
            }
            layer = f"model.layers.{i}."
            q, k, v = block["qkv.weight"].chunk(3)
            for name, matrix in (("q", q), ("k", k)):
                rows = matrix.reshape(2, 8, 16)[:, pairs].flatten(0, 1)
                weights[f"{layer}self_attn.{name}_proj.weight"] = rows
                gain = block[f"norm_qk.{'qk'.index(name)}.weight"]
                weights[f"{layer}self_attn.{name}_norm.weight"] = gain[pairs]
            weights |= {
                f"{layer}self_attn.v_proj.weight": v,
                f"{layer}self_attn.o_proj.weight": block["out.weight"],
                f"{layer}input_layernorm.weight": block["norm1.weight"],
                f"{layer}post_attention_layernorm.weight": block["norm2.weight"],
            } | {
                f"{layer}mlp.{n}_proj.weight": block[f"{n}.weight"] for n in ("gate", "up", "down")
            }
        weights["model.embed_tokens.weight"] = own["embedding.weight"] * 4
        weights["lm_head.weight"] = own["embedding.weight"]
        weights["model.norm.weight"] = own["norm.weight"]
        theirs.load_state_dict(weights)
        ids, pos = torch.randint(12, (3, 7)), torch.arange(7)[None]
        torch.testing.assert_close(ours(ids, pos), theirs.eval()(ids).logits, rtol=1e-5, atol=1e-5)


def test_attention_mask():
    ids = torch.zeros(2, 3, dtype=torch.long)
    assert attention_mask(Context(torch.arange(3)[None], ids)) == CAUSAL
    alone = attention_mask(Context(torch.tensor([[-1, 0, 1]]), ids[:1]))
    assert alone.tolist() == [[[[True, False, False], [False, True, False], [False, True, True]]]]
    mask = attention_mask(Context(torch.tensor([[-1, 0, 1], [0, 1, 2]])))
    assert mask.tolist() == [
        [[[True, False, False], [False, True, False], [False, True, True]]],
        [[[True, False, False], [True, True, False], [True, True, True]]],
    ]
    last = attention_mask(Context(torch.arange(3)[None], n_new=2))
    assert last.tolist() == [[[[True, True, False], [True, True, True]]]]
