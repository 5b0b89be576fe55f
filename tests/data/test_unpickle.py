"""A pickle can hold data and nothing else, however it is spelt."""

import codecs
import contextlib
import io
import os
import pickle
import pickletools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.data import unpickle
from dualmix.errors import DataError

from .makers import legacy_pickle

FIELDS = {
    "names": ["a", "b"],
    "labels": [1, 2, 255],
    "data": np.arange(12, dtype=np.uint8).reshape(3, 4),
}


def read(raw):
    return unpickle.read(io.BytesIO(raw), "the file", "get another")


class Calls:
    def __init__(self, function, *arguments):
        self.plan = function, arguments

    def __reduce__(self):
        return self.plan


def text(value):
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def hostile(command):
    """Give pickles that would run a shell command when loaded, by name."""
    shell = text(command)
    array = np.array([Calls(os.system, command)], dtype=object)
    found = {
        f"reduce protocol {p}": pickle.dumps({"data": Calls(os.system, command)}, p)
        for p in range(6)
    }
    found |= {f"object array protocol {p}": pickle.dumps({"data": array}, p) for p in range(6)}
    return found | {
        "posix": b"\x80\x02cposix\nsystem\n" + shell + b"\x85R.",
        "os": b"\x80\x02cos\nsystem\n" + shell + b"\x85R.",
        "inst": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "obj": b"\x80\x02(cos\nsystem\n" + shell + b"o.",
        "newobj": b"\x80\x02cos\nsystem\n" + shell + b"\x85\x81.",
        "newobj_ex": b"\x80\x04cos\nsystem\n" + shell + b"\x85}\x92.",
        "stack global": b"\x80\x04" + text("os") + text("system") + b"\x93" + shell + b"\x85R.",
        "dotted stack global": b"\x80\x04"
        + text("numpy")
        + text("os.system")
        + b"\x93"
        + shell
        + b"\x85R.",
        "builtins eval": b"\x80\x02c__builtin__\neval\n"
        + text(f"__import__('os').system({command!r})")
        + b"\x85R.",
        "getattr of an admitted name": (
            b"\x80\x02cbuiltins\ngetattr\ncnumpy\nndarray\n"
            + text("__class__")
            + b"\x86R"
            + shell
            + b"\x85R."
        ),
        "runstring": b"\x80\x02cnumpy.testing._private.utils\nrunstring\n" + shell + b"}\x86R.",
        "codecs with another coding": b"\x80\x02c_codecs\nencode\n"
        + shell
        + text("rot13")
        + b"\x86R.",
        "codecs with a callable": b"\x80\x02c_codecs\nencode\ncnumpy\nndarray\n"
        + text("latin1")
        + b"\x86R.",
        "ndarray called": b"\x80\x02cnumpy\nndarray\nK\x01\x85\x85R.",
        "dtype of objects": b"\x80\x02cnumpy\ndtype\n" + text("O8") + b"K\x00K\x01\x87R.",
        "reconstruct of another class": (
            b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85U\x01b\x87R."
        ),
        "build on a name": b"\x80\x02cnumpy\nndarray\n}"
        + text("__reduce__")
        + b"cnumpy\ndtype\nsb.",
        "build on a dictionary": b"\x80\x02}}b.",
        "persistent id": b"\x80\x02" + shell + b"Q.",
        "persistent id as text": b"P" + command.encode() + b"\n.",
        "extension": b"\x80\x02\x82\x01.",
        "append to a name": b"\x80\x02cnumpy\nndarray\nK\x01a.",
        "tuple as a key": b"\x80\x02})K\x01s.",
        "out-of-band buffer": b"\x80\x05\x97.",
    }


def test_the_hostile_pickles_would_really_run(tmp_path):
    sentinel = tmp_path / "ran"
    for name in (
        "reduce protocol 4",
        "object array protocol 2",
        "posix",
        "inst",
        "obj",
        "stack global",
    ):
        pickle.loads(hostile(f"touch '{sentinel}'")[name])
        assert sentinel.exists(), name
        sentinel.unlink()


@pytest.mark.parametrize("kind", hostile("true"))
def test_hostile_pickle_is_refused_and_nothing_runs(kind, tmp_path):
    sentinel = tmp_path / "ran"
    with pytest.raises(
        DataError, match=r"^the file (was refused before|is cut short).*: get another\.$"
    ):
        read(hostile(f"touch '{sentinel}'")[kind])
    assert not sentinel.exists()


def test_refusal_names_what_was_asked_for():
    with pytest.raises(DataError, match=r"it holds posix\.system"):
        read(hostile("true")["posix"])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_reads_what_python_3_writes(protocol):
    fields = FIELDS | {
        "members": {"n01": [0, 1], "n02": [2]},
        "order": np.asfortranarray(FIELDS["data"]),
    }
    got = read(pickle.dumps(fields, protocol=protocol))
    assert got.keys() == fields.keys() and got["members"] == fields["members"]
    np.testing.assert_array_equal(got["data"], fields["data"])
    np.testing.assert_array_equal(got["order"], fields["data"])


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_reads_both_spellings_of_numpy(protocol):
    raw = pickle.dumps({"data": FIELDS["data"]}, protocol=protocol)
    old = raw.replace(b"numpy._core.", b"numpy.core.") if protocol == 2 else raw
    np.testing.assert_array_equal(read(old)["data"], FIELDS["data"])


def test_reads_what_python_2_wrote():
    got = read(legacy_pickle(FIELDS))
    assert got["names"] == FIELDS["names"] and got["labels"] == FIELDS["labels"]
    np.testing.assert_array_equal(got["data"], FIELDS["data"])


@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "<u2"])
@pytest.mark.parametrize("protocol", [2, 3, 5])
def test_reads_whole_numbers_of_any_width(dtype, protocol):
    array = np.array([[0, 1], [2, 100]], dtype=dtype)
    np.testing.assert_array_equal(read(pickle.dumps({"a": array}, protocol))["a"], array)


def test_an_array_filed_twice_is_read_twice():
    array = np.arange(3, dtype=np.uint8)
    got = read(pickle.dumps({"a": array, "b": array}, 3))
    np.testing.assert_array_equal(got["b"], array)


@pytest.mark.parametrize("dtype", ["f8", "U3", "M8[s]", [("a", "u1")], "c16"])
def test_other_arrays_are_refused(dtype):
    with pytest.raises(DataError, match="refused"):
        read(pickle.dumps({"a": np.zeros(2, dtype)}, 3))


@settings(deadline=None, max_examples=60)
@given(cut=st.integers(0, len(legacy_pickle(FIELDS)) - 1))
def test_cut_anywhere_is_one_clear_sentence(cut):
    with pytest.raises(DataError, match=r"^the file is cut short or damaged: get another\.$"):
        read(legacy_pickle(FIELDS)[:cut])


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_noise_is_data_or_a_data_error_and_nothing_else(noise):
    with contextlib.suppress(DataError):
        assert isinstance(read(b"\x80\x02" + noise), dict)


@settings(deadline=None, max_examples=300)
@given(
    place=st.integers(0, len(legacy_pickle(FIELDS)) - 1),
    byte=st.sampled_from([ord(op.code) for op in pickletools.opcodes]),
)
def test_any_changed_byte_gives_data_or_a_data_error(place, byte):
    raw = bytearray(legacy_pickle(FIELDS))
    raw[place] = byte
    with contextlib.suppress(DataError):
        assert isinstance(read(bytes(raw)), dict)


def test_huge_claims_take_no_memory():
    for raw in (
        b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f" + b"x.",
        b"\x80\x02T\xff\xff\xff\x7fx.",
        b"\x80\x02}r\xff\xff\xff\xff.",
        b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f}.",
    ):
        with contextlib.suppress(DataError):
            assert read(raw) == {}


def test_a_bomb_of_parts_is_refused(monkeypatch):
    monkeypatch.setattr(unpickle, "MOST_STEPS", 1000)
    with pytest.raises(DataError, match="far more parts"):
        read(b"\x80\x02}(" + b"N" * 5000 + b"u.")


def test_nested_and_endless_structures_do_no_harm():
    deep = b"\x80\x02]q\x00" + b"h\x00h\x00\x86q\x00" * 200 + b"K\x01s."
    endless = b"\x80\x02}q\x00" + text("self") + b"h\x00s."
    with pytest.raises(DataError):
        read(deep)
    assert read(endless)["self"]["self"] is not None


def test_only_a_dictionary_will_do():
    with pytest.raises(DataError, match="does not hold a dictionary"):
        read(pickle.dumps([1, 2], 2))


def test_tokens_never_become_real_objects():
    assert not any(callable(token) for token in unpickle._ADMITTED.values())
    assert codecs.encode not in unpickle._ADMITTED.values()
