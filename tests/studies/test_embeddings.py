"""The study of embeddings sees every row once, and ridge is the batch solution."""

from __future__ import annotations

import numpy as np

from studies import embeddings
from studies.embeddings import LEARNERS, TASKS, Features, apart, chosen, inner, main, score, stream

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(10, 5)).astype(np.float32) * 3


def made(rows):
    y = RNG.permutation(np.arange(rows) % 10)
    return CENTRES[y] + RNG.normal(size=(rows, 5)).astype(np.float32), y


FEATURES = Features(*made(200), *made(50))


def test_a_stream_has_every_row_once_in_tasks_of_their_own():
    batches = list(stream(FEATURES, 1))
    assert sorted(map(bytes, np.concatenate([x for x, _, _ in batches]))) == sorted(
        map(bytes, FEATURES.train_x)
    )
    assert sum(last for _, _, last in batches) == TASKS
    assert [set(y) for _, y, _ in batches] != [set(y) for _, y, _ in stream(FEATURES, 2)]


def test_ridge_is_the_batch_solution_to_five_digits():
    accuracy, seconds, learner = score("ridge", FEATURES, 0)
    assert accuracy > 0.5 and seconds > 0
    assert apart(learner, FEATURES) < 1e-5


def test_a_learning_rate_is_chosen_without_the_test_rows(monkeypatch):
    rows = inner(FEATURES)
    both = np.concatenate([rows.train_x, rows.test_x])
    assert sorted(map(bytes, both)) == sorted(map(bytes, FEATURES.train_x))
    assert set(rows.test_y) == set(rows.train_y) == set(FEATURES.train_y)
    asked = []

    def scored(name, features, seed, lr):
        asked.append((lr, seed))
        assert features.test_x.shape == rows.test_x.shape
        return -abs(lr - 0.1), 0.0, None

    monkeypatch.setattr(embeddings, "score", scored)
    assert chosen("er", FEATURES) == {"lr": 0.1} and chosen("ncm", FEATURES) == {}
    assert len(asked) == len(embeddings.RATES) * 2 and min(seed for _, seed in asked) >= 100


def test_the_table_has_a_line_per_learner(tmp_path, capsys):
    np.savez(tmp_path / "f.npz", **FEATURES._asdict())
    words = ["--features", str(tmp_path / "f.npz"), "--seeds", "2"]
    main([*words, "--learners", "ncm", "ridge"])
    said = capsys.readouterr().out
    assert "| ncm |" in said and "| ridge |" in said and "differ by" in said
    assert set(LEARNERS) >= {"ncm", "slda", "ridge", "fecam", "randumb", "er", "er+dualmix"}
