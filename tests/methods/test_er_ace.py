"""ER-ACE: the loss of the new batch by hand, and which head rows a new batch pushes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dualmix
from dualmix.config.compose import compose
from dualmix.methods.er_ace import asymmetric_ce

SHAPE, LR = (1, 8, 8), 0.1


def batch(rows: int, seed: int, labels: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, *SHAPE), dtype=np.uint8), np.array(labels)


@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 4), st.integers(0, 2**32))
@settings(deadline=None)
def test_the_softmax_runs_over_own_and_unseen_columns(
    rows: int, seen: int, spare: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits, columns = rng.normal(0, 3, (rows, seen + spare)), rng.integers(0, seen, rows)
    allowed = [c for c in range(seen + spare) if c in columns or c >= seen]
    want = np.mean(
        [np.log(np.exp(z[allowed]).sum()) - z[c] for z, c in zip(logits, columns, strict=True)]
    )
    z = torch.tensor(logits, requires_grad=True)
    got = asymmetric_ce(z, torch.from_numpy(columns), seen)
    assert got.item() == pytest.approx(want, abs=1e-9)
    got.backward()
    barred = [c for c in range(seen) if c not in columns]
    assert torch.isfinite(z.grad).all() and (z.grad[:, barred] == 0).all()
    if len(allowed) > 1:
        assert (z.grad[:, allowed] != 0).any()


@pytest.mark.parametrize("classes", [None, 7], ids=["growing", "fixed"])
@pytest.mark.parametrize("forward", ["separate", "joint"])
def test_a_step_by_hand(classes: int | None, forward: Any) -> None:
    """New rows compete among themselves and with columns never seen, rehearsed rows with all."""
    learner = dualmix.create(
        "er-ace", SHAPE, classes=classes, memory=4, memory_batch=4, lr=LR, forward=forward
    )
    learner.observe(*batch(4, 0, [10, 11, 12, 13]))
    hand = copy.deepcopy(learner.model).train()
    x, y = batch(3, 1, [12, 14, 12])
    hand.admit(y)
    old = learner.memory.x.permute(0, 3, 1, 2).float() / 255, learner.memory.y.clone()
    order = copy.deepcopy(learner.rng)["retrieve"].choice(4, size=4, replace=False)
    new = torch.from_numpy(x).float() / 255, torch.tensor([2, 4, 2])
    if forward == "joint":
        z_new, z_old = hand(torch.cat([new[0], old[0][order]])).split([3, 4])
    else:
        z_new, z_old = hand(new[0]), hand(old[0][order])
    own = [2, 4] if classes is None else [2, 4, 5, 6]
    loss = (torch.logsumexp(z_new[:, own], 1) - z_new[[0, 1, 2], new[1]]).mean()
    loss = loss + (torch.logsumexp(z_old, 1) - z_old[torch.arange(4), old[1][order]]).mean()
    weights = list(hand.parameters())
    with torch.no_grad():
        for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.sub_(LR * slope)
    assert learner.observe(x, y).item() == pytest.approx(loss.item(), rel=1e-5)
    for (name, got), want in zip(
        learner.model.state_dict().items(), hand.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(
            got, want, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_the_first_batch_of_one_class_has_nothing_to_compete_with() -> None:
    learner = dualmix.create("er-ace", SHAPE, memory=4)
    before = copy.deepcopy(learner.model.backbone)
    assert float(learner.observe(*batch(3, 0, [5, 5, 5]))) == 0
    pairs = zip(learner.model.backbone.parameters(), before.parameters(), strict=True)
    assert all(torch.equal(now, then) for now, then in pairs)


def test_hits_are_counted_over_all_columns() -> None:
    learner = dualmix.create("er-ace", SHAPE, classes=3, memory=4)
    learner.observe(*batch(3, 0, [0, 1, 2]))
    with torch.no_grad():
        learner.model.bias[0] = 1e3
    learner.observe(*batch(4, 1, [1, 2, 1, 2]))
    assert int(learner.hits) == 0


def test_additions_follow_from_the_parts() -> None:
    assert compose("er-ace+dualmix").config.method.mix == compose("er+dualmix").config.method.mix
    assert set(dualmix.create("er-ace+adpmix", SHAPE, memory=5).mixes) == {"view", "adpmix"}


def test_a_cosine_head_by_hand() -> None:
    """Ten times the cosine of features and class weights, without the bias; also when asked."""
    learner = dualmix.create("er-ace", SHAPE, memory=9, head="cosine", lr=0.05)
    for seed in range(3):
        learner.observe(*batch(6, seed, [0, 1, 2, 3, 4, seed]))
    model = copy.deepcopy(learner.model).eval()
    x = batch(8, 30, [])[0]
    with torch.no_grad():
        f, w = model.embed(torch.from_numpy(x).float() / 255).double(), model.weight.double()
        cosine = (f @ w.T) / f.norm(dim=1)[:, None] / w.norm(dim=1)
        got = model(torch.from_numpy(x).float() / 255)
    torch.testing.assert_close(got.double(), 10 * cosine, rtol=1e-4, atol=1e-5)
    names = np.asarray(model.labels)
    assert learner.predict(x).tolist() == names[cosine.argmax(1).numpy()].tolist()
    plain = dualmix.create("er-ace", SHAPE, memory=9, lr=0.05)
    assert plain.model.cosine == 0 and plain.recipe["method"]["head"] == "linear"
