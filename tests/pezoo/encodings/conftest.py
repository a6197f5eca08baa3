"""Outputs of other implementations, with inputs; `_schema` in each file names the source."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def reference() -> Any:
    """Encodings and attention of Ruoss et al. 2023."""
    return _tensors(json.loads((DATA / "encodings.json").read_text()))


@pytest.fixture
def oracles() -> Any:
    """Packages that the tests do not install, in float64."""
    return json.loads((DATA / "attention-oracles.json").read_text())


@pytest.fixture
def qk(reference: Any) -> tuple[Tensor, Tensor]:
    """(B, H, T, K) queries and keys of the reference."""
    q, k = (reference["inputs"][name].transpose(1, 2) for name in "qk")
    return q, k


def _tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tensors(item) for name, item in value.items()}
    if isinstance(value, list) and not isinstance(value[0], dict):
        return torch.tensor(value)
    return [_tensors(item) for item in value] if isinstance(value, list) else value
