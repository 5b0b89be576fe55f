"""Scores against values worked out by hand and against loops written straight from the formulas."""

from __future__ import annotations

import doctest
import inspect
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dualmix.runs import metrics

NAN = math.nan

# Task 0 is best (0.9) at stage 1, not on the diagonal; no term of Eq. (15) is negative at the last
# stage.
FORGETS = np.array(
    [
        [0.8, NAN, NAN],
        [0.9, 0.7, NAN],
        [0.3, 0.4, 0.6],
    ]
)
# Task 0 is best at the last stage, so its term of Eq. (15) is negative.
IMPROVES = np.array(
    [
        [0.5, NAN, NAN],
        [0.4, 0.8, NAN],
        [0.7, 0.6, 0.9],
    ]
)

# Tasks of uneven size, classes with uneven numbers of test images; class 3 is to come at stages
# 0 and 1.
TASKS = [[2], [0, 1], [3]]
COUNTS = np.zeros((3, 4, 4), dtype=np.int64)
COUNTS[0, 2] = [0, 0, 3, 1]
COUNTS[1] = [
    [6, 1, 2, 1],
    [0, 1, 1, 0],
    [1, 1, 1, 1],
    [0, 0, 0, 0],
]
COUNTS[2] = [
    [5, 1, 1, 3],
    [1, 0, 0, 1],
    [0, 1, 2, 1],
    [0, 1, 0, 4],
]
# Task 0 (class 2): 3/4, 1/4, 2/4. Task 1 (classes 0, 1; 10 + 2 images): (6+1)/12, (5+0)/12.
# Task 2: 4/5.
COUNTS_A = np.array(
    [
        [3 / 4, NAN, NAN],
        [1 / 4, 7 / 12, NAN],
        [2 / 4, 5 / 12, 4 / 5],
    ]
)


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12, equal_nan=True)


class TestByHand:
    def test_accuracy_matrix_weighs_images_not_classes(self):
        close(metrics.accuracy_matrix(COUNTS, TASKS), COUNTS_A)

    def test_average_accuracy_weighs_tasks(self):
        # 0.8; (0.9 + 0.7) / 2; (0.3 + 0.4 + 0.6) / 3
        close(metrics.average_accuracy(FORGETS), [0.8, 0.8, 1.3 / 3])

    def test_forgetting(self):
        # stage 1: 0.8 - 0.9; stage 2: ((0.9 - 0.3) + (0.7 - 0.4)) / 2
        close(metrics.forgetting(FORGETS), [NAN, -0.1, 0.45])

    def test_forgetting_keeps_negative_terms(self):
        # stage 1: 0.5 - 0.4; stage 2: ((0.5 - 0.7) + (0.8 - 0.6)) / 2
        close(metrics.forgetting(IMPROVES), [NAN, 0.1, 0.0])

    def test_forgetting_ref(self):
        # stage 1: (0.9 - 0.9 + 0) / 2; stage 2: ((0.9 - 0.3) + (0.7 - 0.4) + 0) / 3
        close(metrics.forgetting_ref(FORGETS), [0.0, 0.0, 0.3])

    def test_forgetting_ref_is_two_thirds_of_the_formula_for_three_tasks(self):
        close(metrics.forgetting_ref(FORGETS)[-1], metrics.forgetting(FORGETS)[-1] * 2 / 3)

    def test_forgetting_ref_drops_negative_terms(self):
        # stage 1: (0.5 - 0.4) / 2; stage 2: ((0.7 - 0.7) + (0.8 - 0.6) + 0) / 3
        close(metrics.forgetting_ref(IMPROVES), [0.0, 0.05, 0.2 / 3])
        assert (
            metrics.forgetting_ref(IMPROVES)[-1] > metrics.forgetting(IMPROVES)[-1] * 2 / 3 + 0.05
        )

    def test_error_shares(self):
        new_old, old_new = metrics.error_shares(COUNTS, TASKS)
        # stage 1, new {0, 1}: wrong 4 + 1, as class 2: 2 + 1; class 3 (one image) is not old
        # stage 2, new {3}: wrong 1, as class 1
        close(new_old, [NAN, 3 / 5, 1])
        # stage 1, old {2}: wrong 3, as 0 or 1: 2
        # stage 2, old {2, 0, 1}: wrong 2 + 5 + 2 = 9, as class 3: 1 + 3 + 1
        close(old_new, [NAN, 2 / 3, 5 / 9])

    def test_error_shares_are_undefined_without_errors(self):
        counts = np.array([[[2, 0], [0, 0]], [[2, 0], [0, 3]]])
        for shares in metrics.error_shares(counts, [[0], [1]]):
            close(shares, [NAN, NAN])

    def test_error_shares_of_errors_among_new_classes_only(self):
        counts = np.zeros((2, 3, 3), dtype=np.int64)
        counts[1] = [[2, 0, 0], [0, 1, 1], [0, 0, 2]]
        new_old, old_new = metrics.error_shares(counts, [[0], [1, 2]])
        close(new_old, [NAN, 0])
        close(old_new, [NAN, NAN])

    def test_anytime_accuracy(self):
        # (0.8 + 0.8 + 1.3/3) / 3 = 6.1/9
        close(metrics.anytime_accuracy(FORGETS), 6.1 / 9)

    def test_backward_transfer(self):
        # ((0.3 - 0.8) + (0.4 - 0.7)) / 2
        close(metrics.backward_transfer(FORGETS), -0.4)
        # ((0.7 - 0.5) + (0.6 - 0.8)) / 2
        close(metrics.backward_transfer(IMPROVES), 0.0)

    def test_learning_accuracy(self):
        # (0.8 + 0.7 + 0.6) / 3
        close(metrics.learning_accuracy(FORGETS), 0.7)

    def test_class_accuracy_is_that_of_the_last_stage(self):
        # 5/10, 0/2, 2/4, 4/5; at stage 1 class 3 had no image: 6/10, 1/2, 1/4
        close(metrics.class_accuracy(COUNTS), [0.5, 0, 0.5, 0.8])
        close(metrics.class_accuracy(COUNTS[:2]), [0.6, 0.5, 0.25, NAN])

    def test_one_task(self):
        a = np.array([[0.6]])
        close(metrics.average_accuracy(a), [0.6])
        close(metrics.forgetting(a), [NAN])
        close(metrics.forgetting_ref(a), [0])
        assert math.isnan(metrics.backward_transfer(a))
        assert metrics.learning_accuracy(a) == metrics.anytime_accuracy(a) == 0.6

    def test_entries_above_the_diagonal_are_not_read(self):
        noisy = np.where(np.isnan(FORGETS), 1.0, FORGETS)
        for score in SCORES_OF_A:
            close(score(noisy), score(FORGETS))


SCORES_OF_A = [
    metrics.average_accuracy,
    metrics.forgetting,
    metrics.forgetting_ref,
    metrics.anytime_accuracy,
    metrics.backward_transfer,
    metrics.learning_accuracy,
]


class TestUnfinished:
    def test_the_matrix_covers_the_finished_stages(self):
        close(metrics.accuracy_matrix(COUNTS[:2], TASKS), COUNTS_A[:2, :2])

    def test_scores_are_those_of_the_prefix(self):
        whole, part = metrics.error_shares(COUNTS, TASKS), metrics.error_shares(COUNTS[:2], TASKS)
        close(part, np.array(whole)[:, :2])
        a = metrics.accuracy_matrix(COUNTS, TASKS)
        for score in (metrics.average_accuracy, metrics.forgetting, metrics.forgetting_ref):
            close(score(a[:2, :2]), score(a)[:2])

    def test_rows_of_tasks_to_come_are_not_read(self):
        eager = COUNTS.copy()
        eager[0, 0] = 7
        eager[1, 3] = 7
        close(metrics.accuracy_matrix(eager, TASKS), COUNTS_A)
        close(metrics.error_shares(eager, TASKS), metrics.error_shares(COUNTS, TASKS))


class TestInterval:
    def test_ten_runs(self):
        # 1..10: mean 5.5, variance 82.5 / 9, t_{0.975, 9} = 2.262
        found = metrics.interval(range(1, 11))
        assert found.n == 10
        assert found.mean == 5.5
        assert found.std == pytest.approx(math.sqrt(82.5 / 9))
        assert found.half == pytest.approx(2.262 * math.sqrt(82.5 / 9) / math.sqrt(10), rel=1e-4)

    def test_two_runs(self):
        # t_{0.975, 1} = 12.706, std = sqrt(0.02), half = 12.706 * 0.1
        found = metrics.interval([0.4, 0.6])
        assert found.std == pytest.approx(math.sqrt(0.02))
        assert found.half == pytest.approx(1.2706, rel=1e-4)

    def test_level(self):
        # t_{0.95, 9} = 1.833
        wide, narrow = metrics.interval(range(10)), metrics.interval(range(10), level=0.9)
        assert narrow.half / wide.half == pytest.approx(1.833 / 2.262, rel=1e-3)

    def test_one_run_has_no_width(self):
        found = metrics.interval([0.25])
        assert (found.mean, found.n) == (0.25, 1)
        assert math.isnan(found.std)
        assert math.isnan(found.half)

    def test_equal_runs_have_no_width(self):
        assert metrics.interval([0.5, 0.5, 0.5]) == metrics.Interval(0.5, 0.0, 0.0, 3)

    @pytest.mark.parametrize("values", [[], [[0.1, 0.2]], 0.1, [0.1, NAN], [math.inf]])
    def test_unusable_values(self, values):
        with pytest.raises(ValueError, match="An interval needs"):
            metrics.interval(values)

    @pytest.mark.parametrize("level", [0, 1, 95, NAN])
    def test_unusable_level(self, level):
        with pytest.raises(ValueError, match="between 0 and 1"):
            metrics.interval([0.1, 0.2], level)

    @given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.floats(0.5, 0.99))
    def test_against_scipy(self, values, level):
        found = metrics.interval(values, level)
        half = (
            stats.t.ppf((1 + level) / 2, len(values) - 1)
            * statistics.stdev(values)
            / math.sqrt(len(values))
        )
        assert found.half == pytest.approx(half, abs=1e-12)

    def test_is_frozen(self):
        with pytest.raises(AttributeError):
            metrics.interval([0.1]).mean = 0.2


class TestSummary:
    def test_values(self):
        got = metrics.summary(COUNTS, TASKS)
        wanted = {
            "average_accuracy": (1 / 2 + 5 / 12 + 4 / 5) / 3,
            "forgetting": ((3 / 4 - 1 / 2) + (7 / 12 - 5 / 12)) / 2,
            "forgetting_ref": ((3 / 4 - 1 / 2) + (7 / 12 - 5 / 12)) / 3,
            "anytime_accuracy": (3 / 4 + (1 / 4 + 7 / 12) / 2 + (1 / 2 + 5 / 12 + 4 / 5) / 3) / 3,
            "backward_transfer": ((1 / 2 - 3 / 4) + (5 / 12 - 7 / 12)) / 2,
            "learning_accuracy": (3 / 4 + 7 / 12 + 4 / 5) / 3,
            "last_task_accuracy": 4 / 5,
            "average_accuracy_by_task": [3 / 4, (1 / 4 + 7 / 12) / 2, (1 / 2 + 5 / 12 + 4 / 5) / 3],
            "forgetting_by_task": [None, 1 / 2, ((3 / 4 - 1 / 2) + (7 / 12 - 5 / 12)) / 2],
            "er_new_old": [None, 3 / 5, 1],
            "er_old_new": [None, 2 / 3, 5 / 9],
            "accuracy_matrix": [[3 / 4, None, None], [1 / 4, 7 / 12, None], [1 / 2, 5 / 12, 4 / 5]],
            "class_accuracy": [1 / 2, 0, 1 / 2, 4 / 5],
        }
        assert list(got) == list(wanted)
        for name, score in wanted.items():
            close(np.array(got[name], dtype=float), np.array(score, dtype=float))

    @pytest.mark.parametrize("stages", [1, 2, 3])
    def test_survives_strict_json(self, stages):
        got = metrics.summary(COUNTS[:stages], TASKS)
        assert json.loads(json.dumps(got, allow_nan=False)) == got

    def test_one_stage_has_no_forgetting_and_no_transfer(self):
        got = metrics.summary(COUNTS[:1], TASKS)
        assert got["forgetting"] is None
        assert got["backward_transfer"] is None
        assert got["forgetting_ref"] == 0
        assert got["class_accuracy"] == [None, None, 0.75, None]


OF_COUNTS = [
    metrics.accuracy_matrix,
    metrics.error_shares,
    metrics.summary,
    lambda counts, _: metrics.class_accuracy(counts),
]


class TestFaults:
    @pytest.mark.parametrize("score", OF_COUNTS)
    @pytest.mark.parametrize(
        ("counts", "words"),
        [
            (COUNTS[0], "shape"),
            (COUNTS[:, :2], "shape"),
            (COUNTS[:0], "shape"),
            (np.zeros((2, 0, 0), dtype=np.int64), "shape"),
            (-COUNTS, "never negative"),
            (COUNTS.astype(float), "whole numbers"),
            (COUNTS > 0, "whole numbers"),
        ],
    )
    def test_counts(self, score, counts, words):
        with pytest.raises(ValueError, match=words) as fault:
            score(counts, TASKS)
        assert str(fault.value).endswith(".")
        assert "\n" not in str(fault.value)

    @pytest.mark.parametrize("score", OF_COUNTS[:3])
    @pytest.mark.parametrize(
        ("tasks", "words"),
        [
            ([[2], [0, 1]], "3 stages, but there are only 2 tasks"),
            ([[2], [0, 1], [2, 3]], "Task 3 names class 2, which was named before"),
            ([[2, 2], [0, 1], [3]], "Task 1 names class 2, which was named before"),
            ([[2], [0, 1], [4]], "Task 3 names class 4, but classes are 0 to 3"),
            ([[2], [0, -1], [3]], "Task 2 names class -1, but"),
            ([[2], [0, 1.0], [3]], "Task 2 names class 1.0, which is not a whole number"),
            ([[2], [0, True], [3]], "Task 2 names class True, which is not a whole number"),
        ],
    )
    def test_tasks(self, score, tasks, words):
        with pytest.raises(ValueError, match=words):
            score(COUNTS, tasks)

    @pytest.mark.parametrize("score", [metrics.accuracy_matrix, metrics.summary])
    def test_a_seen_task_without_test_images_is_named(self, score):
        counts = COUNTS.copy()
        counts[2, :2] = 0
        with pytest.raises(ValueError, match="Task 2 has no accuracy: the counts after task 3"):
            score(counts, TASKS)
        with pytest.raises(ValueError, match="Task 2 has no accuracy: the counts after task 2"):
            score(COUNTS, [[2], [], [3]])

    def test_a_class_without_test_images_in_a_task_that_has_some(self):
        counts = COUNTS.copy()
        counts[:, 1] = 0
        assert metrics.accuracy_matrix(counts, TASKS)[1, 1] == 6 / 10

    @pytest.mark.parametrize("score", SCORES_OF_A)
    @pytest.mark.parametrize(
        "a",
        [FORGETS[0], FORGETS[:2], FORGETS[:0, :0], FORGETS.T, FORGETS * 100, -FORGETS],
        ids=["vector", "oblong", "empty", "transposed", "percent", "negative"],
    )
    def test_accuracy_matrix(self, score, a):
        with pytest.raises(ValueError, match="An accuracy matrix"):
            score(a)

    @pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint64])
    def test_any_whole_number_type_will_do(self, dtype):
        assert metrics.summary(COUNTS.astype(dtype), TASKS) == metrics.summary(COUNTS, TASKS)

    def test_numpy_class_numbers_will_do(self):
        assert metrics.summary(COUNTS, [np.array(task) for task in TASKS]) == metrics.summary(
            COUNTS, TASKS
        )

    def test_arguments_are_left_alone(self):
        counts = COUNTS.copy()
        counts.flags.writeable = False
        metrics.summary(counts, TASKS)
        a = metrics.accuracy_matrix(counts, TASKS)
        a.flags.writeable = False
        for score in SCORES_OF_A:
            score(a)


@st.composite
def runs(draw):
    """Counts of a run, finished or not, over tasks of uneven size, predictions of any class."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    classes = sum(sizes) + draw(st.integers(0, 1))
    order = draw(st.permutations(range(classes)))
    ends = np.cumsum(sizes)
    tasks = [list(order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    stages = draw(st.integers(1, len(tasks)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    counts = rng.integers(0, draw(st.sampled_from([2, 4, 50])), (stages, classes, classes))
    for i in range(stages):
        counts[i, [c for c in range(classes) if c not in order[: ends[i]]]] = 0
        for task in tasks[: i + 1]:
            counts[i, task[0], draw(st.sampled_from(order))] += 1
    return counts, tasks


def loops(counts, tasks):
    """Every score of `summary` by plain loops over the formulas; tasks and stages from 1 as in the
    paper.
    """
    counts = counts.tolist()
    stages, classes = len(counts), len(counts[0])

    def n(i, y, p):
        return counts[i - 1][y][p]

    def share(i, true, taken_for):
        hits = wrong = 0
        for y in true:
            for p in range(classes):
                wrong += n(i, y, p) if p != y else 0
                hits += n(i, y, p) if p in taken_for and p != y else 0
        return hits / wrong if wrong and taken_for and true else None

    a = {}
    for i in range(1, stages + 1):
        for j in range(1, i + 1):
            members = tasks[j - 1]
            images = sum(n(i, y, p) for y in members for p in range(classes))
            a[i, j] = sum(n(i, y, y) for y in members) / images
    average, forgot, forgot_ref, new_old, old_new = [], [], [], [], []
    for i in range(1, stages + 1):
        average.append(sum(a[i, j] for j in range(1, i + 1)) / i)
        f = [max(a[k, j] for k in range(1, i) if (k, j) in a) - a[i, j] for j in range(1, i)]
        forgot.append(sum(f) / (i - 1) if i > 1 else None)
        f_ref = [
            max(a[k, j] for k in range(1, i + 1) if (k, j) in a) - a[i, j] for j in range(1, i + 1)
        ]
        forgot_ref.append(sum(f_ref) / i)
        old = [c for task in tasks[: i - 1] for c in task]
        new_old.append(share(i, tasks[i - 1], old))
        old_new.append(share(i, old, tasks[i - 1]))
    rows = [sum(row) for row in counts[-1]]
    change = [a[stages, j] - a[j, j] for j in range(1, stages)]
    return {
        "average_accuracy": average[-1],
        "forgetting": forgot[-1],
        "forgetting_ref": forgot_ref[-1],
        "anytime_accuracy": sum(average) / stages,
        "backward_transfer": sum(change) / len(change) if change else None,
        "learning_accuracy": sum(a[j, j] for j in range(1, stages + 1)) / stages,
        "last_task_accuracy": a[stages, stages],
        "average_accuracy_by_task": average,
        "forgetting_by_task": forgot,
        "er_new_old": new_old,
        "er_old_new": old_new,
        "accuracy_matrix": [
            [a.get((i, j)) for j in range(1, stages + 1)] for i in range(1, stages + 1)
        ],
        "class_accuracy": [n(stages, c, c) / rows[c] if rows[c] else None for c in range(classes)],
    }


def assert_same(got, wanted):
    assert got.keys() == wanted.keys()
    for name in wanted:
        close(np.array(got[name], dtype=float), np.array(wanted[name], dtype=float))


class TestProperties:
    @given(runs())
    def test_equals_the_loops(self, run):
        assert_same(metrics.summary(*run), loops(*run))

    @given(runs(), st.randoms(use_true_random=False))
    def test_class_numbers_do_not_matter(self, run, random):
        counts, tasks = run
        rename = list(range(counts.shape[1]))
        random.shuffle(rename)
        renamed = np.empty_like(counts)
        renamed[np.ix_(range(len(counts)), rename, rename)] = counts
        within = [random.sample([rename[c] for c in task], len(task)) for task in tasks]
        got, wanted = metrics.summary(renamed, within), metrics.summary(counts, tasks)
        got["class_accuracy"] = [got["class_accuracy"][c] for c in rename]
        assert_same(got, wanted)

    @given(runs(), st.integers(2, 9))
    def test_more_images_of_the_same_kind_change_nothing(self, run, times):
        counts, tasks = run
        assert_same(metrics.summary(counts * times, tasks), metrics.summary(counts, tasks))

    @given(runs())
    def test_bounds(self, run):
        a = metrics.accuracy_matrix(*run)
        average, forgot, forgot_ref = (
            score(a)
            for score in (metrics.average_accuracy, metrics.forgetting, metrics.forgetting_ref)
        )
        assert ((average >= 0) & (average <= 1)).all()
        assert ((forgot_ref >= 0) & (forgot_ref <= 1)).all()
        assert (np.abs(forgot[1:]) <= 1).all()
        for shares in metrics.error_shares(*run):
            defined = shares[~np.isnan(shares)]
            assert ((defined >= 0) & (defined <= 1)).all()

    @given(runs())
    def test_the_two_readings_of_forgetting(self, run):
        a = metrics.accuracy_matrix(*run)
        stages = np.arange(1, len(a) + 1)
        scaled = metrics.forgetting(a)[1:] * (stages[1:] - 1) / stages[1:]
        gap = metrics.forgetting_ref(a)[1:] - scaled
        assert (gap >= -1e-12).all()
        for i in range(1, len(a)):
            negative = any(a[i, j] > a[j:i, j].max() for j in range(i))
            assert (gap[i - 1] > 1e-12) == negative


def test_the_examples_in_the_docstrings_run():
    found = doctest.testmod(metrics)
    assert found.failed == 0
    shown = {
        test.name.rpartition(".")[2]
        for test in doctest.DocTestFinder().find(metrics)
        if test.examples
    }
    functions = inspect.getmembers(metrics, inspect.isfunction)
    own = {
        name
        for name, f in functions
        if f.__module__ == metrics.__name__ and not name.startswith("_")
    }
    assert own <= shown


def test_import_is_light():
    """Neither torch nor scipy is loaded by the module itself."""
    program = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('alone', {str(Path(metrics.__file__))!r})\n"
        "sys.modules['alone'] = module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "assert not {'scipy', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
