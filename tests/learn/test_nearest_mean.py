"""Nearest class mean against plain numpy over one image at a time."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from dualmix.learn.memory import Memory
from dualmix.learn.nearest_mean import ROWS, class_means, nearest
from tests.kit import SHAPE, filled, images, network, stored


def features(model, x: torch.Tensor) -> np.ndarray:
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        return np.concatenate([model.embed(row[None]).double().numpy() for row in x])


def means_by_hand(model, memory: Memory) -> dict[int, np.ndarray]:
    x, y = stored(memory, range(len(memory)))
    unit = features(model, x)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    found = {c: unit[y.numpy() == c].mean(0) for c in set(y.tolist())}
    return {c: mean / np.linalg.norm(mean) for c, mean in found.items()}


@pytest.mark.parametrize("capacity", [7, ROWS + 3])
def test_means_are_directions_of_mean_unit_features(capacity: int) -> None:
    model, memory = network(), filled(capacity)
    for row in range(
        4
    ):  # one class of images far brighter than the rest: its features are longer, its vote is not
        memory.x[row] = 255
    got = class_means(model, memory).numpy()
    want = means_by_hand(model, memory)
    assert len(want) > 1
    for column, mean in want.items():
        np.testing.assert_allclose(got[column], mean, atol=1e-5)


def test_nearest_is_the_least_distance_of_unit_vectors() -> None:
    model, memory = network(), filled(9)
    x = torch.from_numpy(images(20, 3)).float() / 255
    means = class_means(model, memory)
    unit = features(model, x)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    distance = ((unit[:, None] - means.double().numpy()) ** 2).sum(2)
    model.eval()
    with torch.no_grad():
        assert nearest(model, means)(x).argmax(1).tolist() == distance.argmin(1).tolist()


def test_a_class_without_a_row_has_a_direction_of_its_own() -> None:
    model, memory = network(classes=9, known=6), filled(9)
    got = class_means(model, memory)
    assert got.shape == (6, model.backbone.features)
    torch.testing.assert_close(got.norm(dim=1), torch.ones(6))
    assert torch.equal(got, class_means(model, memory))
    assert not torch.allclose(got[4], got[5])
    assert (got[:4] >= 0).all() and (got[4:] < 0).any(1).all()
    assert not torch.equal(got[4:], class_means(network(classes=9, known=6, seed=2), memory)[4:])


def test_looking_changes_nothing() -> None:
    model, memory = network().train(), filled(9)
    before = copy.deepcopy(model.state_dict())
    class_means(model, memory)
    assert model.training
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )
    assert class_means(model, Memory(3, SHAPE)).shape == (4, model.backbone.features)
