"""Random tiny models in folders, and texts to read."""

import pytest
import torch

SIZES = {
    "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.3,
}  # fmt: skip
MORE = {"Qwen3": {"head_dim": 8}, "Mistral": {"sliding_window": None}}


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """(kind, **settings) -> the folder of a random model of transformers, which reads bytes."""
    transformers = pytest.importorskip("transformers", minversion="5.20")
    transformers.logging.disable_progress_bar()

    def save(kind="Llama", **settings):
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**SIZES, **MORE.get(kind, {}), **settings)
        folder = tmp_path_factory.mktemp("model")
        getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def llama(saved):
    """The folder of a random Llama."""
    return saved()
