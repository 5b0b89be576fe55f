"""Rules and settings are there without torch, which is imported when it is first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dualmix.learn import lazy


@pytest.mark.slow
def test_torch_is_imported_at_the_first_look() -> None:
    script = (
        "import sys, dualmix.methods, dualmix.learn.replay; "
        "from dualmix.learn.lazy import F, torch; "
        "assert 'torch' not in sys.modules; "
        "assert dualmix.methods.ER().mix.build()['view'].weight == 0; "
        "assert 'torch' not in sys.modules; "
        "assert float(F.relu(torch.tensor(-2.0))) == 0; "
        "assert sys.modules['torch'].tensor is torch.tensor"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=900)


def test_what_torch_lacks_is_said_by_torch() -> None:
    with pytest.raises(AttributeError, match="module 'torch' has no attribute 'nothing'"):
        lazy.torch.nothing  # noqa: B018
