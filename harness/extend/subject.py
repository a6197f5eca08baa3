"""A trained model that reads tokens, with one encoding after the other."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.model.transformer import Transformer, shape_of
from harness.training.trainer import Trainer
from pezoo.adapters import resolve
from pezoo.base import Encoding
from pezoo.registry import make

OWN = "rope"  # the model's own rotation, with its own options
BYTES = 256  # tokens of a vocabulary of bytes
SHORTEST = 8  # tokens that a model was trained on, at least
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
BYTE = re.compile("<0x[0-9A-F]{2}>")  # a token of one byte
LOCAL = {"local_files_only": True, "trust_remote_code": False}


class Subject(ABC):
    """A causal model: `trained` is L, the length of its texts in training.

    `rotation` is its rope_parameters, None where no other software reads the model.
    """

    module: nn.Module
    name: str
    trained: int
    d_head: int
    rotation: dict[str, Any] | None = None
    rate = 1e-3  # of tuning
    facts = ""  # what its numbers depend on beside its weights

    @abstractmethod
    def put(self, way: str) -> Encoding:
        """Replace the encoding. Errors: SpecError or ValueError."""

    @abstractmethod
    def logits(self, ids: Tensor, last: int) -> Tensor:
        """Return the logits (B, last, V) after the last tokens of ids (B, T)."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, here its bytes."""
        return list(text.encode())

    def size(self, ids: list[int]) -> int:
        """Return the bytes of a text of these tokens."""
        return len(ids)

    def checksum(self) -> str:
        """Return a hash of every weight, the config and the tokenizer."""
        found = hashlib.sha256(self.facts.encode())
        for x in self.module.parameters():
            found.update(x.detach().contiguous().flatten().view(torch.uint8).cpu().numpy())
        return found.hexdigest()


class OfRun(Subject):
    """The model of a run of a protocol of text, which reads bytes."""

    def __init__(self, trainer: Trainer, run: str) -> None:
        config, model = trainer.config, trainer.model
        self.module: Transformer = model.eval()
        self.name = f"run {run}"
        self.trained, self.d_head = config.first.train.lengths[1], model.encoding.shape.d_head
        self.shape = shape_of(config.model, model.encoding.shape.train_len)

    def put(self, way: str) -> Encoding:
        made = make(way, self.shape).to(self.module.embedding.weight.device).eval()
        self.module.encoding, self.module.attention = made, resolve("auto", made)
        return made

    def logits(self, ids: Tensor, last: int) -> Tensor:
        pos, scale = torch.arange(ids.shape[1], device=ids.device), torch.tensor([ids.shape[1]])
        found: Tensor = self.module(ids, pos[None], scale=scale.to(ids.device), last=last)
        return found


class OfTransformers(Subject):
    """A causal model of transformers, from a folder or a GGUF file."""

    def __init__(self, path: Path, device: str, dtype: str) -> None:
        folder, options = _located(path)
        transformers = _transformers()
        load = transformers.AutoModelForCausalLM.from_pretrained
        with _named(f"cannot load the model in {path}"):
            config = transformers.AutoConfig.from_pretrained(folder, **options)
        _check(path, config)
        self.tokenizer = _tokenizer(path, folder, options, config.vocab_size)
        with _named(f"cannot load the model in {path}"):
            found, info = load(folder, dtype=DTYPES[dtype], output_loading_info=True, **options)
        if lacking := sorted(info["missing_keys"]):
            raise ValueError(f"the model in {path} lacks {len(lacking)} weights, as {lacking[0]}")
        self.module = found.to(device).eval()
        self.name = path.resolve().name
        self.trained, self.rotation = config.max_position_embeddings, config.rope_parameters
        self.d_head = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        self.rate, self.vocab = 2e-5, config.vocab_size
        own = {k: v for k, v in config.to_dict().items() if k not in ("_name_or_path", "dtype")}
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        said = backend.to_str() if backend else str(self.tokenizer)
        self.facts = json.dumps(own, sort_keys=True, default=str) + said
        decoder = said.partition('"decoder":')[2].partition('"model":')[0]
        self.of_bytes = '"type":"ByteLevel"' in decoder

    def put(self, way: str) -> Encoding:
        from pezoo.adapters.transformers import use

        made: Encoding = use(self.module, way).base_model.encoding
        return made

    def logits(self, ids: Tensor, last: int) -> Tensor:
        found: Tensor = self.module(input_ids=ids, logits_to_keep=last, use_cache=False).logits
        return found

    def encode(self, text: str) -> list[int]:
        if self.tokenizer is None:
            return super().encode(text)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        if max(ids, default=0) >= self.vocab:
            raise ValueError(
                f"the tokenizer gives token {max(ids)}, but the model has {self.vocab:,}: expected "
                "the tokenizer that it was trained with"
            )
        return ids

    def size(self, ids: list[int]) -> int:
        if self.tokenizer is None:
            return len(ids)
        return sum(map(self._bytes, self.tokenizer.convert_ids_to_tokens(ids)))

    def _bytes(self, token: str) -> int:
        """Return the bytes of a token, which may end inside a character."""
        if self.of_bytes:  # a letter for each byte
            return len(token)
        return 1 if BYTE.fullmatch(token) else len(token.replace("▁", " ").encode())


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ValueError(
            "a model of transformers needs a package: pip install 'pezoo[extend]'"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _located(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the folder, and options of from_pretrained. Errors: ValueError."""
    if path.suffix == ".gguf" and path.is_file():
        return path.parent, LOCAL | {"gguf_file": path.name}
    if path.is_dir() and not (path / "config.json").exists():
        files = sorted(one.name for one in path.glob("*.gguf"))
        if len(files) > 1:
            raise ValueError(
                f"{path} holds {len(files)} GGUF files: name one, as {path / files[0]}"
            )
        if files:
            return path, LOCAL | {"gguf_file": files[0]}
    if not (path / "config.json").exists():
        raise ValueError(
            f"no model in {path}: expected a folder with config.json of a causal model of "
            "transformers, a GGUF file, or the id or folder of a run of protocol text"
        )
    return path, LOCAL


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn any error, which depends on the file that is damaged, into a ValueError of one line."""
    try:
        yield
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{what}: {first[:200]}") from error


def _check(path: Path, config: Any) -> None:
    """Raise ValueError for a model that is not causal, or does not rotate."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    from pezoo.adapters.transformers_pass import NAME

    name = (getattr(config, "architectures", None) or [config.model_type])[0]
    if name not in (*CAUSAL, *CAUSAL.values()):
        raise ValueError(
            f"{name} in {path} is not a causal model: pezoo extend needs one that predicts the "
            "next token, such as LlamaForCausalLM"
        )
    if not (
        getattr(config, "rope_parameters", 0) and getattr(config, "max_position_embeddings", 0)
    ):
        raise ValueError(
            f"{name} in {path} does not rotate: pezoo extend is for models trained with RoPE, such "
            "as Llama, Qwen or Mistral"
        )
    if kept := getattr(config, NAME, None):
        raise ValueError(
            f"the model in {path} was saved with the encoding {kept.get('encoding', 'of pezoo')}: "
            "expected one with the rotation that it was trained with"
        )
    if config.max_position_embeddings < SHORTEST:
        raise ValueError(
            f"max_position_embeddings of {path} is {config.max_position_embeddings}: expected the "
            f"tokens that it was trained on, {SHORTEST} or more"
        )


def _tokenizer(path: Path, folder: Path, options: dict[str, Any], vocab: int) -> Any:
    """Return the tokenizer, None for a model of bytes without one. Errors: ValueError."""
    from transformers import AutoTokenizer

    kept = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    if "gguf_file" not in options and not any((folder / name).exists() for name in kept):
        if vocab == BYTES:
            return None
        raise ValueError(
            f"no tokenizer in {path}, and a vocabulary of {vocab:,} tokens is not one of "
            f"{BYTES} bytes: save it there, tokenizer.save_pretrained(folder)"
        )
    with _named(f"cannot load the tokenizer in {path}"):
        return AutoTokenizer.from_pretrained(folder, **options)
