"""What may be handed to a learner, and how it is refused."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.errors import InputError
from dualmix.learn.inputs import as_labels, as_pixels, as_vectors

SHAPE = (3, 5, 4)
RAW = np.random.default_rng(0).integers(0, 256, (2, *SHAPE), dtype=np.uint8)
ROWS = RAW.transpose(0, 2, 3, 1).tolist()


def frozen(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    "x",
    [
        RAW,
        torch.from_numpy(RAW),
        (RAW / 255).astype(np.float16),
        (RAW / 255).astype(np.float32),
        RAW / 255,
        (RAW / 255).astype(">f4"),
        torch.from_numpy(RAW / 255),
        torch.from_numpy(RAW / 255).requires_grad_(),
        frozen(RAW.copy()),
        np.ascontiguousarray(RAW.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        np.ascontiguousarray(RAW[:, :, ::-1, ::-1])[:, :, ::-1, ::-1],
        np.repeat(RAW, 2, axis=0)[::2],
        np.asfortranarray(RAW),
    ],
)
def test_images_come_out_as_the_same_rows(x: object) -> None:
    rows = as_pixels(x, SHAPE)
    assert rows.dtype == torch.uint8 and rows.is_contiguous()
    assert rows.tolist() == ROWS


def test_every_level_survives_the_way_through_floats() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    for kind in (np.float16, np.float32, np.float64):
        assert as_pixels((levels / 255).astype(kind), (1, 16, 16)).flatten().tolist() == list(
            range(256)
        )


def test_floats_go_to_the_nearest_level() -> None:
    x = np.array([[[[0.0, 0.4 / 255, 0.6 / 255, 1.0]]]])
    assert as_pixels(x, (1, 1, 4)).flatten().tolist() == [0, 0, 1, 255]


def test_the_caller_array_is_not_changed() -> None:
    x = RAW / 255
    kept = x.copy()
    as_pixels(x, SHAPE)
    assert (x == kept).all()


def changed(pixel: float) -> np.ndarray:
    x = RAW / 255
    x[1, 2, 3, 1] = pixel
    return x


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (RAW[0], "give x\\[None\\]"),
        (RAW.transpose(0, 2, 3, 1), "channels come last"),
        (RAW[:, :1], "must have 3 channels .* but they have 1"),
        (RAW[:, :, :4], "resize them"),
        (RAW[:, :, :, :3], "resize them"),
        (RAW.reshape(2, -1), "resize them"),
        (RAW[:0], "empty"),
        (RAW.astype(np.int64), "int64"),
        (RAW.astype(np.int8), "int8"),
        (RAW.astype(bool), "bool"),
        (RAW.astype(complex), "complex"),
        (RAW.astype(np.longdouble), "longdouble|float128"),
        (RAW.astype(object), "object"),
        (torch.from_numpy(RAW.astype(np.int32)), "int32"),
        (torch.from_numpy(RAW) > 3, "bool"),
        (changed(np.nan), "NaN or infinite"),
        (changed(np.inf), "NaN or infinite"),
        (torch.from_numpy(changed(-np.inf)), "NaN or infinite"),
        (changed(-0.01), "range from -0.01 to"),
        (changed(1.01), "to 1.01"),
        (RAW.astype(np.float32), "scale them, or give uint8"),
        ([[[[1]]], [[[1, 2]]]], "one array"),
        (torch.from_numpy(RAW).to_sparse(), "sparse, nested, quantised, masked or meta"),
        (torch.empty(2, *SHAPE, device="meta"), "sparse, nested, quantised, masked or meta"),
    ],
)
def test_bad_images_are_refused_in_a_sentence(x: object, says: str) -> None:
    with pytest.raises(InputError, match=says) as fault:
        as_pixels(x, SHAPE)
    assert str(fault.value).endswith(".")
    assert isinstance(fault.value, ValueError)


@pytest.mark.parametrize(
    ("y", "want"),
    [
        ([3, -1], [3, -1]),
        (np.array([2**63 - 1, -(2**63)]), [2**63 - 1, -(2**63)]),
        (np.array([1, 2], dtype=np.uint64), [1, 2]),
        (np.array([200, 2], dtype=np.uint8), [200, 2]),
        (np.array([True, False]), [1, 0]),
        ([3.0, -2.0], [3, -2]),
        (np.array([2.0**53 - 1, 0]), [2**53 - 1, 0]),
        (torch.tensor([4, 5], dtype=torch.int32), [4, 5]),
        (torch.tensor([4.0, 5.0], requires_grad=True), [4, 5]),
        (["b", "a"], ["b", "a"]),
        (np.array(["é", ""]), ["é", ""]),
        (np.array(["x", "long"], dtype=object), ["x", "long"]),
    ],
)
def test_labels_come_out_exactly(y: object, want: list) -> None:
    labels = as_labels(y, 2)
    assert labels.tolist() == want
    assert labels.dtype == np.int64 or labels.dtype.kind == "U"


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
@settings(deadline=None)
def test_whole_numbers_never_change(y: list[int]) -> None:
    assert as_labels(y, len(y)).tolist() == y


@pytest.mark.parametrize(
    ("y", "says"),
    [
        ([1, 2, 3], r"each of 2 rows, but their shape is \(3,\)"),
        ([1], r"shape is \(1,\)"),
        ([[1], [2]], r"shape is \(2, 1\)"),
        (5, r"shape is \(\)"),
        ([0.5, 1], "fractions"),
        ([np.nan, 1], "fractions or NaN"),
        ([np.inf, 1], "fractions or NaN"),
        ([2.0**53, 1], "too large to be exact"),
        (np.array([2**63, 1], dtype=np.uint64), "64 bits"),
        ([2**70, 1], "object"),
        ([None, None], "object"),
        ([b"a", b"b"], "whole numbers"),
        ([1j, 2], "complex"),
        (np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"), "datetime64"),
        ([[1], [2, 3]], "one array"),
        (torch.tensor([1, 2]).to_sparse(), "sparse, nested, quantised, masked or meta"),
        (torch.tensor([0.5, 2.0], dtype=torch.bfloat16), "fractions"),
    ],
)
def test_bad_labels_are_refused_in_a_sentence(y: object, says: str) -> None:
    with pytest.raises(InputError, match=says) as fault:
        as_labels(y, 2)
    assert str(fault.value).endswith(".")


def test_without_a_count_any_flat_list_will_do() -> None:
    assert as_labels([1, 2, 3]).tolist() == [1, 2, 3]
    with pytest.raises(InputError, match="flat list"):
        as_labels([[1, 2]])


@pytest.mark.filterwarnings("ignore:.*(nested tensors|quantize_per_tensor):UserWarning")
def test_masks_and_odd_tensors_are_refused() -> None:
    """A mask would be dropped without a word."""
    x = np.zeros((2, 1, 8, 8), np.uint8)
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(1)])
    quantised = torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.quint8)
    hidden = np.ma.masked_array(x, mask=True)
    for masked in (hidden, np.ma.masked_array(x), list(hidden), [[*one] for one in hidden]):
        with pytest.raises(InputError, match="masked array"):
            as_pixels(masked, (1, 8, 8))
    partly = np.ma.masked_array([1, 2], mask=[True, False])
    for labels in (partly, [np.ma.masked, 1], nested, quantised):
        with pytest.raises(InputError, match=r"masked|nested, quantised"):
            as_labels(labels, 2)
    with pytest.raises(InputError, match="meta"):
        as_labels(torch.zeros(2, dtype=torch.int64, device="meta"), 2)
    for images in (nested, torch.quantize_per_tensor(torch.zeros(2, 1, 8, 8), 1, 0, torch.quint8)):
        with pytest.raises(InputError, match="nested, quantised"):
            as_pixels(images, (1, 8, 8))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_torch_cannot_give_as_numbers_is_refused() -> None:
    from torch.masked import masked_tensor

    bits, half = torch.zeros(2, dtype=torch.uint8), torch.rand(2, 5) > 0.5
    hidden = masked_tensor(torch.zeros(2), torch.zeros(2) > 0)
    conjugate = torch.zeros(2, dtype=torch.complex64).conj()
    for labels in (bits.view(torch.bits8), conjugate, hidden):
        with pytest.raises(InputError, match=r"convert it|ordinary array"):
            as_labels(labels, 2)
    for vectors in (masked_tensor(torch.rand(2, 5), half), half.byte().view(torch.bits8)):
        with pytest.raises(InputError, match=r"convert it|ordinary array"):
            as_vectors(vectors, (5,))
    with pytest.raises(InputError, match="ordinary array"):
        as_pixels(torch.zeros(2, 1, 8, 8).to(torch.float8_e4m3fn), (1, 8, 8))


class Tagged(torch.Tensor):
    """A class of tensors of somebody's own."""


def test_classes_of_tensors_do_not_spread() -> None:
    for rows in (
        as_vectors(torch.rand(2, 5).as_subclass(Tagged), (5,)),
        as_pixels(torch.rand(2, 1, 8, 8).as_subclass(Tagged), (1, 8, 8)),
    ):
        assert type(rows) is torch.Tensor


@pytest.mark.parametrize("kind", [">f8", ">f4", ">f2", ">i2", "<f8", "?"])
def test_vectors_of_any_byte_order(kind: str) -> None:
    x = np.array([[1, 0, 1]])
    assert as_vectors(x.astype(kind), (3,)).tolist() == x.tolist()


def test_labels_that_numpy_would_change_are_refused() -> None:
    """Numpy drops a NUL at the end, which makes one class of two, and makes text of numbers."""
    for text in (["a\0", "a"], np.array(["a", "\0"], dtype=object)):
        with pytest.raises(InputError, match="NUL"):
            as_labels(text, 2)
    assert as_labels(["a\0b", "a"]).tolist() == ["a\0b", "a"]
    with pytest.raises(InputError, match="numbers and text"):
        as_labels(deque([1, "a"]), 2)
    with pytest.raises(InputError, match="masked array"):
        as_labels(deque([1, np.ma.masked]), 2)


@pytest.mark.parametrize(
    ("got", "shape", "said"),
    [
        ((28, 28), (1, 28, 28), r"one image \(28, 28\): give x\[None, None\]"),
        ((8, 8, 3), (3, 8, 8), r"one image \(8, 8, 3\): give x.transpose\(2, 0, 1\)\[None\]"),
        ((2, 8, 8), (3, 8, 8), r"grey \(2, 8, 8\): give x\[:, None\].repeat\(3, 1\)"),
        ((2, 28, 28), (1, 28, 28), r"no axis for their one channel .* give x\[:, None\]"),
    ],
)
def test_the_advice_for_a_shape_works(got, shape, said):
    x = np.zeros(got, np.uint8)
    with pytest.raises(InputError, match=said) as caught:
        as_pixels(x, shape)
    advice = str(caught.value).rpartition("give ")[2].rstrip(".")
    assert as_pixels(eval(advice, {"x": x}), shape).shape[1:] == (*shape[1:], shape[0])
