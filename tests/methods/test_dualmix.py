"""Eqs. 7, 8 and 9 by hand, what they promise for any numbers, and every option of the mixes."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from dualmix.learn.arithmetic import TORCH
from dualmix.learn.class_ages import ClassAges
from dualmix.learn.mixing import one_hot
from dualmix.learn.types import Batch
from dualmix.methods.dualmix import AdpMix, EnMix, Mixing, Once, View, label_ratio

PAPER = {"kappa": 2.0, "tau": 0.5, "delta": 0.05}
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)
shares = st.floats(0, 1, width=32)
ratios = st.floats(0, 2.0**20, width=32)


class Fixed:
    """A generator whose draws are written down beforehand."""

    def __init__(self, mu: Any = (), orders: Any = ()) -> None:
        self.mu, self.orders = mu, iter(orders)

    def beta(self, a: float, b: float, size: int) -> Any:
        assert a == b
        assert size == len(self.mu)
        return np.array(self.mu)

    def permutation(self, of: Any) -> Any:
        order = np.array(next(self.orders))
        assert sorted(order) == (list(range(of)) if isinstance(of, int) else sorted(of))
        return order


def same(x: Tensor, rng: Any) -> Tensor:
    return x


def negative(x: Tensor, rng: Any) -> Tensor:
    return 1 - x


def noisy(x: Tensor, rng: Any) -> Tensor:
    return torch.from_numpy(rng.random(tuple(x.shape))).float()


def head(*norms: float, bias: float = 0.0, known: int | None = None) -> Any:
    """A head whose rows have exactly the given norms, none of them along an axis; `known` classes
    were seen.
    """
    weight = torch.tensor(norms)[:, None] * torch.tensor([[0.5, -0.5, 0.5, 0.5]])
    return SimpleNamespace(
        weight=weight.requires_grad_(),
        bias=torch.full((len(norms),), bias, requires_grad=True),
        labels=list(range(len(norms) if known is None else known)),
        arithmetic=TORCH,
    )


def seen(*columns: int, steps: int = 1) -> ClassAges:
    ages = ClassAges()
    for _ in range(steps):
        ages.note(np.array(columns))
    return ages


def marked(*columns: int, pixel: float = 1.0) -> Batch:
    """One bright pixel per image, at its own place: a mixed image tells what it was made of."""
    return Batch(
        pixel * torch.eye(len(columns)).view(-1, 1, 1, len(columns)), torch.tensor(columns)
    )


def plain(value: float, *columns: int) -> Batch:
    return Batch(torch.full((len(columns), 1, 2, 2), value), torch.tensor(columns))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def ratios_of(mixed: Batch) -> np.ndarray:
    """Return mu_x of a batch mixed from old images of ones and new images of noughts."""
    return mixed.x[:, 0, 0, 0].numpy()


def origins(mixed: Batch, old: int) -> list[tuple[int, int]]:
    """Return the pairs (i, j) of a batch whose rows all have classes of their own, the old ones
    first.
    """
    return [(int(row[:old].argmax()), int(row[old:].argmax())) for row in mixed.y]


# Equations


@pytest.mark.parametrize(
    ("mu_x", "ratio", "mu_y"),
    [
        (0.6, 3.0, 0.75),
        (0.6, 2.0, 0.6),
        (0.6, 2.0001, 0.700005),
        (0.5, 3.0, 0.5),
        (0.5001, 3.0, 0.6501),
        (0.4, 100.0, 0.4),
        (0.9, 2.5, 1.0),
        (0.51, 100.0, 1.0),
        (0.9, 0.5, 0.9),
        (1.0, 4.0, 1.0),
        (0.0, 4.0, 0.0),
    ],
)
def test_label_ratio_by_hand(mu_x: float, ratio: float, mu_y: float) -> None:
    found = label_ratio(torch.tensor([mu_x]), torch.tensor([ratio]), **PAPER)
    torch.testing.assert_close(found, torch.tensor([mu_y]))


def test_label_ratio_takes_each_setting() -> None:
    mu, r = torch.tensor([0.3, 0.6]), torch.tensor([1.5, 1.5])
    torch.testing.assert_close(
        label_ratio(mu, r, kappa=1.0, tau=0.5, delta=0.1), torch.tensor([0.3, 0.75])
    )
    torch.testing.assert_close(
        label_ratio(mu, r, kappa=1.0, tau=0.2, delta=0.2), torch.tensor([0.6, 0.9])
    )
    torch.testing.assert_close(label_ratio(mu, r, kappa=1.5, tau=0.2, delta=0.2), mu)


@quick
@given(
    st.lists(st.tuples(shares, ratios), min_size=1, max_size=20),
    ratios,
    shares,
    st.floats(0, 4, width=32),
)
def test_label_ratio_keeps_its_bounds(rows: Any, kappa: float, tau: float, delta: float) -> None:
    mu_x, r = torch.tensor(rows).unbind(1)
    mu_y = label_ratio(mu_x, r, kappa=kappa, tau=tau, delta=delta)
    gate = (r > kappa) & (mu_x > tau)
    assert (mu_y >= mu_x).all()
    assert (mu_y <= 1).all()
    assert torch.equal(mu_y[~gate], mu_x[~gate])
    torch.testing.assert_close(mu_y[gate], torch.minimum(mu_x + delta * r, torch.tensor(1.0))[gate])


@quick
@given(st.lists(st.tuples(shares, ratios), min_size=1, max_size=20))
@pytest.mark.slow
def test_label_ratio_is_the_same_without_tilt(rows: Any) -> None:
    mu_x, r = torch.tensor(rows).unbind(1)
    assert torch.equal(label_ratio(mu_x, r, kappa=2.0, tau=0.5, delta=0.0), mu_x)
    assert torch.equal(label_ratio(mu_x, r, kappa=float("inf"), tau=0.5, delta=0.05), mu_x)


# The plain view


def test_view_augments_the_old_batch_alone() -> None:
    old = marked(0, 1, 1)
    made = View(negative)(plain(0.5, 2), old, head(1, 1, 1), seen(2), rng())
    assert torch.equal(made.x, 1 - old.x)
    assert torch.equal(made.y, old.y)
    assert not made.counters
    assert View(same).weight == 1.0


def test_view_draws_from_the_generator_it_is_given() -> None:
    made = View(noisy)(plain(0, 1), marked(0, 1), head(1, 1), seen(1), rng(4))
    assert torch.equal(made.x, noisy(made.x, rng(4)))


# EnMix


def enmix(
    old: Batch, chance: Any, columns: int = 0, ages: ClassAges | None = None, **options: Any
) -> Batch:
    columns = columns or int(old.y.max()) + 1
    new = plain(0.123, 0)
    made = EnMix(**{"g": same, **options})(
        new, old, head(*[1.0] * columns), ages or seen(0), chance
    )
    assert made is not None
    assert not made.counters
    return made


def test_enmix_by_hand() -> None:
    old = Batch(torch.tensor([0.0, 0.4, 1.0]).view(3, 1, 1, 1), torch.tensor([0, 2, 2]))
    made = enmix(old, Fixed([0.25, 0.5, 0.9], [[1, 2, 0]]), columns=4, g=negative)
    torch.testing.assert_close(made.x.flatten(), torch.tensor([0.25 + 0.75 * 0.6, 0.5 * 0.6, 0.1]))
    expected = torch.tensor([[0.25, 0, 0.75, 0], [0, 0, 1.0, 0], [0.1, 0, 0.9, 0]])
    torch.testing.assert_close(made.y, expected)


def test_enmix_has_the_values_of_the_paper() -> None:
    mix = EnMix(same)
    assert (mix.weight, mix.alpha, mix.each) == (1.0, 0.2, "pair")


def between(mixed: Tensor, one: Tensor, other: Tensor) -> bool:
    low, high = torch.minimum(one, other), torch.maximum(one, other)
    return bool(((mixed >= low - 1e-6) & (mixed <= high + 1e-6)).all())


@quick
@given(st.integers(0, 10**6), st.integers(2, 8), st.floats(0.2, 5))
def test_enmix_stays_between_its_pair(seed: int, count: int, alpha: float) -> None:
    chance = rng(seed)
    old = Batch(torch.from_numpy(chance.random((count, 1, 2, 2))).float(), torch.arange(count))
    x, y = old.x.clone(), old.y.clone()
    made = enmix(old, chance, columns=count + 1, alpha=alpha)
    assert torch.equal(old.x, x)
    assert torch.equal(old.y, y)
    assert made.x.shape == x.shape
    for row, (mixed, soft) in enumerate(zip(made.x, made.y, strict=True)):
        others = [i for i in soft.nonzero().flatten().tolist() if i != row]
        assert len(others) <= 1
        assert not others or between(mixed, x[row], x[others[0]])


@quick
@given(
    st.integers(0, 10**6), st.lists(st.integers(0, 4), min_size=1, max_size=8), st.floats(0.01, 5)
)
def test_enmix_labels_sum_to_one(seed: int, columns: list[int], alpha: float) -> None:
    made = enmix(plain(1, *columns), rng(seed), columns=5, alpha=alpha)
    torch.testing.assert_close(made.y.sum(1), torch.ones(len(columns)))
    assert (made.y >= 0).all()
    assert not made.y[:, [c for c in range(5) if c not in columns]].any()


def test_enmix_mixes_images_and_labels_alike() -> None:
    made = enmix(marked(0, 1, 2, 3, 4), rng(3), alpha=2.0)
    assert torch.equal(made.x.flatten(1), made.y)
    assert ((made.y > 0).sum(1) == 2).all()


def test_enmix_draws_ratios_by_alpha() -> None:
    made = enmix(marked(*range(300)), rng(5), alpha=3.0)
    assert stats.kstest(made.y.diagonal().double().numpy(), stats.beta(3, 3).cdf).pvalue > 0.01


@pytest.mark.parametrize(("each", "different"), [("pair", 6), ("batch", 1)])
def test_enmix_draws_a_ratio_each(each: str, different: int) -> None:
    assert (
        enmix(marked(*range(6)), rng(3), each=each, alpha=2.0).y.diagonal().unique().numel()
        == different
    )


def test_enmix_without_alpha_is_a_plain_view() -> None:
    old = marked(0, 1, 2, 1)
    views = negative(old.x, None)
    kept = 0
    for seed in range(20):
        made = enmix(old, rng(seed), alpha=1e-6, g=negative)
        for row, (x, y) in enumerate(zip(made.x, made.y, strict=True)):
            source = [i for i, view in enumerate(views) if torch.equal(x, view)]
            assert len(source) == 1
            assert torch.equal(y, one_hot(old.y[source], head(1, 1, 1))[0])
            kept += source == [row]
    assert 20 < kept < 60


def test_enmix_takes_the_partner_from_the_same_views() -> None:
    calls: list[Tensor] = []

    def half(x: Tensor, rng: Any) -> Tensor:
        calls.append(x)
        return x / 2 ** len(calls)

    made = enmix(marked(0, 1, 2), Fixed([0.25] * 3, [[1, 2, 0]]), g=half)
    torch.testing.assert_close(made.x[0].flatten(), torch.tensor([0.125, 0.375, 0]))
    assert len(calls) == 1


def test_enmix_keeps_the_layout() -> None:
    old = Batch(torch.rand(4, 5, 5, 3).permute(0, 3, 1, 2), torch.tensor([0, 1, 2, 3]))
    assert enmix(old, rng()).x.is_contiguous(memory_format=torch.channels_last)


def test_enmix_of_one_image_is_its_view() -> None:
    made = enmix(marked(0), rng(0), g=negative)
    torch.testing.assert_close(made.x, torch.zeros(1, 1, 1, 1))
    torch.testing.assert_close(made.y, torch.ones(1, 1))


# AdpMix


def adpmix(
    new: Batch,
    old: Batch,
    model: Any,
    chance: Any,
    ages: ClassAges | None = None,
    /,
    **options: Any,
) -> Batch | None:
    known = ages or seen(*range(len(model.weight)))
    return AdpMix(**{"g": same, **options})(new, old, model, known, chance)


def test_adpmix_has_the_values_of_the_paper() -> None:
    mix = AdpMix(same)
    assert (mix.weight, mix.alpha, mix.kappa, mix.tau, mix.delta) == (1.0, 0.2, 2.0, 0.5, 0.05)
    assert (mix.each, mix.augment, mix.old, mix.pairs) == ("pair", "both", "all", "new")
    assert mix.ratio == "pair"


def test_adpmix_by_hand() -> None:
    """Norm ratios 3, 1 and 1/3: only the first pair's label is tilted, by 0.05 * 3."""
    old = Batch(torch.tensor([0.0, 0.4, 1.0]).view(3, 1, 1, 1), torch.tensor([0, 1, 1]))
    new = Batch(torch.tensor([0.2, 0.6, 0.8]).view(3, 1, 1, 1), torch.tensor([2, 3, 2]))
    chance = Fixed([0.6, 0.7, 0.9], [[0, 2, 1], [1, 0, 2]])
    made = adpmix(new, old, head(1.0, 3.0, 1.0, 3.0, 7.0), chance)
    x = [0.6 * 0.0 + 0.4 * 0.6, 0.7 * 1.0 + 0.3 * 0.2, 0.9 * 0.4 + 0.1 * 0.8]
    torch.testing.assert_close(made.x.flatten(), torch.tensor(x))
    y = [[0.75, 0, 0, 0.25, 0], [0, 0.7, 0.3, 0, 0], [0, 0.9, 0.1, 0, 0]]
    torch.testing.assert_close(made.y, torch.tensor(y))
    assert not made.y.requires_grad
    counts = {name: float(count) for name, count in made.counters.items()}
    assert counts == {
        "adpmix pairs": 3,
        "adpmix gate open": 1,
        "adpmix tilted": 1,
        "adpmix saturated": 0,
        "adpmix ratio": pytest.approx(3 + 1 / 3 + 1 / 3),
    }


def test_adpmix_counts_what_it_does() -> None:
    """The gate is open for all: two shares are too small, one is tilted, two are tilted to 1, one
    was 1 before.
    """
    mu = [0.3, 0.5, 0.6, 0.9, 0.95, 1.0]
    made = adpmix(
        plain(0, *[1] * 6), plain(1, *[0] * 6), head(1.0, 3.0), Fixed(mu, [range(6), range(6)])
    )
    torch.testing.assert_close(made.y[:, 0], torch.tensor([0.3, 0.5, 0.75, 1.0, 1.0, 1.0]))
    counts = {name.removeprefix("adpmix "): float(count) for name, count in made.counters.items()}
    assert counts == {"pairs": 6, "gate open": 6, "tilted": 3, "saturated": 2, "ratio": 18}


@pytest.mark.parametrize("kappa", [3.0, 2.9])
def test_the_gate_opens_above_kappa(kappa: float) -> None:
    made = adpmix(plain(0, 1), plain(1, 0), head(1.0, 3.0), Fixed([0.6], [[0], [0]]), kappa=kappa)
    assert float(made.counters["adpmix gate open"]) == (kappa < 3)
    torch.testing.assert_close(made.y[0, 0], torch.tensor(0.6 if kappa == 3 else 0.75))


@pytest.mark.parametrize(
    ("tau", "delta", "mu_y"), [(0.5, 0.05, 0.75), (0.7, 0.05, 0.6), (0.5, 0.1, 0.9)]
)
def test_adpmix_takes_tau_and_delta(tau: float, delta: float, mu_y: float) -> None:
    made = adpmix(
        plain(0, 1), plain(1, 0), head(1.0, 3.0), Fixed([0.6], [[0], [0]]), tau=tau, delta=delta
    )
    torch.testing.assert_close(made.y, torch.tensor([[mu_y, 1 - mu_y]]))


@quick
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.floats(0.25, 8), min_size=4, max_size=4),
    st.sampled_from(["new", "fewer", "all"]),
)
@pytest.mark.slow
def test_adpmix_keeps_its_bounds(
    seed: int, new: list[int], old: list[int], norms: list[float], pairs: str
) -> None:
    now, then = plain(0, *new), plain(1, *old)
    made = adpmix(now, then, head(*norms), rng(seed), pairs=pairs, delta=0.3, kappa=1.5)
    assert (then.x == 1).all()
    assert (now.x == 0).all()
    assert (then.y.tolist(), now.y.tolist()) == (old, new)
    torch.testing.assert_close(made.y.sum(1), torch.ones(len(made)))
    assert made.y.min() >= 0
    mu_x = made.x[:, 0, 0, 0]
    assert ((mu_x >= 0) & (mu_x <= 1)).all()
    assert (made.x == mu_x.view(-1, 1, 1, 1)).all(), "one ratio an image"
    mu_y = made.y[:, sorted(set(old) - set(new))].sum(1)
    if not set(old) & set(new):
        assert (mu_y >= mu_x - 1e-6).all()
        closed = mu_x <= 0.5
        torch.testing.assert_close(mu_y[closed], mu_x[closed])


@quick
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5))
def test_adpmix_stays_between_its_pair(seed: int, new: int, old: int) -> None:
    chance = rng(seed)
    now, then, model = own_classes(new, old)
    now, then = (
        Batch(torch.from_numpy(chance.random(b.x.shape)).float(), b.y) for b in (now, then)
    )
    before = now.x.clone(), then.x.clone()
    made = adpmix(now, then, model, chance, alpha=2.0)
    assert torch.equal(now.x, before[0])
    assert torch.equal(then.x, before[1])
    for mixed, (i, j) in zip(made.x, origins(made, old), strict=True):
        assert between(mixed, then.x[i], now.x[j])


@pytest.mark.parametrize("options", [{"delta": 0.0}, {"kappa": float("inf")}])
def test_adpmix_without_tilt_is_mixup(options: dict[str, float]) -> None:
    made = adpmix(plain(0, *[1] * 50), plain(1, *[0] * 50), head(1.0, 9.0), rng(), **options)
    torch.testing.assert_close(made.y[:, 0], made.x[:, 0, 0, 0])
    assert float(made.counters["adpmix tilted"]) == 0
    assert float(made.counters["adpmix saturated"]) == 0
    tilted = adpmix(plain(0, *[1] * 50), plain(1, *[0] * 50), head(1.0, 9.0), rng())
    assert float(tilted.counters["adpmix tilted"]) > 0


def test_adpmix_draws_ratios_by_alpha() -> None:
    made = adpmix(plain(0, *[1] * 300), plain(1, *[0] * 300), head(1.0, 1.0), rng(6), alpha=3.0)
    assert stats.kstest(ratios_of(made), stats.beta(3, 3).cdf).pvalue > 0.01


@pytest.mark.parametrize(("each", "different"), [("pair", 6), ("batch", 1)])
def test_adpmix_draws_a_ratio_each(each: str, different: int) -> None:
    made = adpmix(
        plain(0, *[1] * 6), plain(1, *[0] * 6), head(1.0, 1.0), rng(3), each=each, alpha=2.0
    )
    assert len(set(ratios_of(made).tolist())) == different


@pytest.mark.parametrize(
    ("augment", "old_side", "new_side"),
    [("neither", 1.0, 0.75), ("old", 0.0, 0.75), ("both", 0.0, 0.25)],
)
def test_adpmix_augments_what_it_is_told_to(augment: str, old_side: float, new_side: float) -> None:
    chance = Fixed([0.25, 0.5], [[0, 1], [0, 1]])
    made = adpmix(
        plain(0.75, 1, 1), plain(1, 0, 0), head(1.0, 1.0), chance, g=negative, augment=augment
    )
    expected = [0.25 * old_side + 0.75 * new_side, 0.5 * old_side + 0.5 * new_side]
    torch.testing.assert_close(made.x[:, 0, 0, 0], torch.tensor(expected))


@pytest.mark.parametrize(
    ("augment", "views"),
    [("neither", [False, False]), ("old", [True, False]), ("both", [True, True])],
)
def test_adpmix_augments_both_sides_by_draws_of_its_own_generator(
    augment: str, views: list[bool]
) -> None:
    sides: list[Tensor] = []

    def spied(x: Tensor, chance: np.random.Generator) -> Tensor:
        assert chance is own
        sides.append(x)
        return noisy(x, chance)

    own = rng(1)
    new, old = plain(0.25, 1, 1, 1), plain(0.75, 0, 0)
    adpmix(new, old, head(1.0, 1.0), own, g=spied, augment=augment)
    assert [x is side for x, side in zip(sides, (old.x, new.x), strict=False)] == [True] * sum(
        views
    )


# Which rows are old


def ages() -> ClassAges:
    """Classes 0 and 1 from step 0 on, a pause after step 2, class 2 from step 3 on, class 3 in step
    5 alone.
    """
    ages = ClassAges()
    for step, columns in enumerate(([0, 1], [0], [1], [2, 1], [2], [2, 3])):
        if step == 3:
            ages.pause()
        ages.note(np.array(columns))
    return ages


@pytest.mark.parametrize(
    ("options", "old"),
    [
        ({"old": "all"}, [0, 1, 2, 3]),
        ({"old": "batch"}, [0, 1]),
        ({"old": "task"}, [0, 1]),
    ],
)
def test_old_rows(options: dict[str, Any], old: list[int]) -> None:
    rehearsed, new = np.array([3, 0, 2, 1, 0]), np.array([2, 3, 2])
    found = AdpMix(same, **options).is_old(new, rehearsed, ages())
    assert found.dtype == bool
    assert found.tolist() == [column in old for column in (3, 0, 2, 1, 0)]
    batches = plain(0, 2, 3, 2), plain(1, 3, 0, 2, 1, 0)
    made = adpmix(
        *batches, head(1.0, 1.0, 1.0, 1.0), rng(), ages(), pairs="all", alpha=50.0, **options
    )
    assert len(made) == 3 * sum(column in old for column in (3, 0, 2, 1, 0))
    assert np.flatnonzero((made.y > 0).any(0)).tolist() == sorted({*old, 2, 3})


def test_a_task_that_never_ended_has_no_old_classes() -> None:
    assert not AdpMix(same, old="task").is_old(np.array([0]), np.array([0, 1]), seen(0, 1)).any()


@pytest.mark.parametrize("old", ["all", "batch"])
def test_adpmix_needs_no_tasks(old: str) -> None:
    ages = seen(0, 1, steps=3)
    ages.note(np.array([2]))
    batches = plain(0, 2, 2), plain(1, 0, 1, 2)
    made = adpmix(*batches, head(1.0, 1.0, 1.0), rng(), ages, old=old, pairs="all", alpha=50.0)
    assert not ages.known_before_task
    assert len(made) == (6 if old == "all" else 4)


@pytest.mark.parametrize("options", [{"old": "batch"}, {"old": "task"}])
def test_adpmix_is_idle_while_no_row_is_old(options: dict[str, Any]) -> None:
    new, old, model = plain(0, 1, 0), plain(1, 0, 1, 1), head(1.0, 1.0)
    chance = rng()
    assert adpmix(new, old, model, chance, seen(0, 1), **options) is None
    assert chance.bit_generator.state == rng().bit_generator.state, "an idle step draws nothing"


# Pairs


def own_classes(new: int, old: int) -> tuple[Batch, Batch, Any]:
    """Batches in which every row has a class of its own, the old ones' first."""
    return plain(0, *range(old, old + new)), plain(1, *range(old)), head(*[1.0] * (new + old))


@pytest.mark.parametrize(("new", "old"), [(4, 3), (3, 4), (1, 5), (5, 1), (7, 2), (3, 3)])
@pytest.mark.parametrize("pairs", ["new", "fewer", "all"])
def test_pairs(pairs: str, new: int, old: int) -> None:
    batches = own_classes(new, old)
    made = adpmix(*batches, rng(5), pairs=pairs, alpha=50.0)
    found = origins(made, old)
    count = {"new": new, "fewer": min(new, old), "all": new * old}[pairs]
    assert len(found) == count
    for side, size in enumerate((old, new)):
        used = Counter(pair[side] for pair in found)
        assert len(used) == min(size, count), "no row is left out while another is used twice"
        assert max(used.values()) - min(used.values()) <= 1
    if pairs == "all":
        assert len(set(found)) == count


def test_pairs_are_drawn_at_random() -> None:
    batches, chance = own_classes(3, 3), rng(8)
    found = Counter(
        tuple(sorted(origins(adpmix(*batches, chance, alpha=50.0), 3))) for _ in range(600)
    )
    assert len(found) == 6
    assert stats.chisquare(list(found.values())).pvalue > 0.01


def test_pairs_shuffle_the_new_rows_too() -> None:
    chance = rng(9)
    batches = own_classes(4, 2)
    found = Counter(
        origins(adpmix(*batches, chance, pairs="fewer", alpha=50.0), 2)[0][1] for _ in range(400)
    )
    assert stats.chisquare([found[j] for j in range(4)]).pvalue > 0.01


# What Eq. 9 compares


def outweighs(new: list[int], old: list[int], model: Any, /, **options: Any) -> list[float]:
    images = torch.zeros(len(new), 1, 1, 1)
    mix = AdpMix(same, **options)
    found = mix.outweighs(torch.tensor(new), torch.tensor(old), images, model)
    assert not found.requires_grad
    return pytest.approx(found.tolist())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"ratio": "pair"}, [5 / 1, 6 / 2, 5 / 1]),
        ({"ratio": "mean"}, [(5 + 6) / (1 + 2)] * 3),
        ({"ratio": "batch"}, [2 / 2, 1 / 1, 2 / 2]),
    ],
)
def test_outweighing(options: dict[str, Any], expected: list[float]) -> None:
    """Norms 1, 2, 5, 6, and 100 of a class never seen; biases, which do not count."""
    model = head(1.0, 2.0, 5.0, 6.0, 100.0, bias=3**0.5, known=4)
    assert outweighs([2, 3, 2], [0, 1, 0], model, **options) == expected


def test_classes_are_counted_over_both_sides_of_the_pairs() -> None:
    """Rows of class 0: one; 1: two, one of them new; 2: two; 3: one."""
    model = head(1.0, 2.0, 5.0, 6.0)
    assert outweighs([2, 1, 2], [0, 3, 1], model, ratio="batch") == [2 / 1, 2 / 1, 2 / 2]


class Logits(torch.nn.Module):
    """Answers each image with logits that are its pixel times 0, 1, 2, ...; notes whether it was in
    training mode.
    """

    arithmetic = TORCH

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert not self.training
        return x.flatten(1)[:, :1] * torch.arange(4.0)


def test_outputs_are_compared_on_the_old_image() -> None:
    """Softmax ratios are exponentials of logit differences: pixel 1 and classes 3, 1; pixel 2 and
    classes 0, 1.
    """
    model = Logits().train()
    images = torch.tensor([1.0, 2.0]).view(2, 1, 1, 1)
    mix = AdpMix(same, ratio="output")
    ours, theirs = torch.tensor([3, 0]), torch.tensor([1, 1])
    found = mix.outweighs(ours, theirs, images, model)  # type: ignore[arg-type]
    assert found.tolist() == pytest.approx([np.exp(2.0), np.exp(-2.0)], rel=1e-5)
    assert model.training


def test_adpmix_compares_outputs_on_each_pairs_own_original() -> None:
    """Pixel 1 of class 1 and pixel 2 of class 0 against class 3: exp(1 * 2) + exp(2 * 3); views are
    not looked at.
    """
    model = Logits()
    model.weight = torch.zeros(4, 1)  # type: ignore[assignment]
    old = Batch(torch.tensor([1.0, 2.0]).view(2, 1, 1, 1), torch.tensor([1, 0]))
    chance = Fixed([0.6, 0.6], orders=[[1, 0], [0, 1]])
    mix = AdpMix(negative, ratio="output")
    made = mix(plain(0, 3, 3), old, model, seen(3), chance)  # type: ignore[arg-type]
    assert made is not None
    assert made.counters["adpmix ratio"].item() == pytest.approx(
        np.exp(2.0) + np.exp(6.0), rel=1e-5
    )


def test_an_old_class_without_any_probability_is_outweighed_by_a_finite_number() -> None:
    mix = AdpMix(same, ratio="output")
    images = torch.full((1, 1, 1, 1), 500.0)
    ours, theirs = torch.tensor([3]), torch.tensor([0])
    found = mix.outweighs(ours, theirs, images, Logits())  # type: ignore[arg-type]
    assert found.tolist() == pytest.approx([1e12])


def test_means_are_over_all_other_classes_seen_and_nothing_outweighs_where_there_is_none() -> None:
    """Norms 1, 2, 5, 6: new classes 2 and 3 against all others seen, whichever are paired; then
    only new ones.
    """
    norms = 1.0, 2.0, 5.0, 6.0, 100.0
    assert outweighs([2, 3], [0, 0], head(*norms, known=4), ratio="mean") == [5.5 / 1.5] * 2
    assert outweighs([0, 1], [0, 1], head(*norms, known=2), ratio="mean") == [0, 0]


def test_a_class_without_weight_is_outweighed_by_a_finite_number() -> None:
    model = head(0.0, 1.0)
    for ratio in ("pair", "mean"):
        assert outweighs([1], [0], model, ratio=ratio) == [1e12]
    assert outweighs([0], [0], model) == [0]


def test_adpmix_compares_the_classes_of_each_pair() -> None:
    """Old rows 0 (norm 1) and 1 (norm 4), new rows 2 (norm 3) and 3 (norm 12): three of four pairs
    are tilted.
    """
    chance = Fixed([0.6] * 4)
    made = adpmix(plain(0, 2, 3), plain(1, 0, 1), head(1.0, 4.0, 3.0, 12.0), chance, pairs="all")
    tilted = {(0, 2): 0.75, (0, 3): 1.0, (1, 2): 0.6, (1, 3): 0.75}
    for row, ((i, j), mu_y) in zip(made.y, tilted.items(), strict=True):
        expected = torch.zeros(4)
        expected[i], expected[j] = mu_y, 1 - mu_y
        torch.testing.assert_close(row, expected)


def test_a_shared_view_is_drawn_once_a_step() -> None:
    """View, EnMix and AdpMix get the same view of the rehearsed batch; new images have their
    own, and the next batch another.
    """
    drawn = []

    def g(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        drawn.append(x)
        return x + len(drawn)

    once = Once(g)
    old, new, rng = torch.zeros(2, 1, 8, 8), torch.zeros(2, 1, 8, 8), np.random.default_rng(0)
    views = [once(x, rng) for x in (old, old, old, new, torch.zeros(2, 1, 8, 8))]
    assert [float(view[0, 0, 0, 0]) for view in views] == [1, 1, 1, 2, 3]
    for shared in (True, False):
        mixes = Mixing(view=1, enmix=1, adpmix=1, shared_view=shared).build()
        assert (mixes["view"].g is mixes["adpmix"].g) and isinstance(
            mixes["view"].g, Once
        ) == shared
    assert not Mixing().shared_view
