"""A learner on a hub: pushed with a card, pulled and checked. The file holds no code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dualmix.errors import ConfigError, DualmixError
from dualmix.runs.build import load
from dualmix.runs.extras import extra
from dualmix.store.files import read_bytes, write_bytes

FILE = "learner.safetensors"


def card(learner: Any, name: str) -> str:
    """Return the card of a learner: what it is, what it knows, what is in the file."""
    recipe, memory = learner.recipe, learner.memory
    labels = [str(label) for label in learner.model.labels]
    shown = ", ".join(label.replace("`", "'") for label in labels[:50])
    more = f" and {len(labels) - 50} more" if len(labels) > 50 else ""
    held = (
        f"The file holds **{len(memory)} rows of the training data as they are**, for rehearsal."
        if len(memory)
        else "The file holds no row of the training data."
    )
    return f"""---
library_name: dualmix
tags:
- continual-learning
- online-learning
- class-incremental
- {json.dumps(recipe["kind"])}
---

# {name.rpartition("/")[2]}

An online class-incremental learner (`{recipe["kind"]}`) for rows of
{" x ".join(map(str, recipe["shape"]))}, after {learner.ages.steps} batches. It can go on learning.

{len(labels)} classes: {shown}{more}.

{held}

```python
from huggingface_hub import hf_hub_download
import dualmix

learner = dualmix.load(hf_hub_download({json.dumps(name)}, "{FILE}"))
learner.predict(images)           # (n, C, H, W) uint8, or floats in [0, 1]
learner.observe(images, labels)   # goes on learning
```

Settings:

```json
{json.dumps(recipe["method"], indent=1, sort_keys=True)}
```
"""


def push(path: Path, name: str, *, public: bool = False, message: str | None = None) -> str:
    """Put a saved learner and its card on the hub; return the address of the commit.

    A new repository is private unless told otherwise: a memory is training data.
    """
    content = read_bytes(path)
    learner: Any = load(content)
    hub = _hub()
    api = hub.HfApi()
    with _told(name):
        api.create_repo(name, private=not public, exist_ok=True, repo_type="model")
        made = api.create_commit(
            name,
            operations=[
                hub.CommitOperationAdd(FILE, content),
                hub.CommitOperationAdd("README.md", card(learner, name).encode()),
            ],
            commit_message=message or f"A learner after {learner.ages.steps} batches",
        )
    return str(made.commit_url)


def pull(name: str, to: Path, *, revision: str | None = None) -> Any:
    """Fetch a learner from the hub, check it, write it to a file and return it."""
    hub = _hub()
    with _told(name):
        fetched = hub.hf_hub_download(name, FILE, revision=revision)
    content = read_bytes(Path(fetched))
    learner = load(content)
    write_bytes(to, content)
    return learner


def _hub() -> Any:
    return extra("huggingface_hub", "hub", "`dualmix hub`")


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Make one sentence of whatever the hub says about a repository."""
    try:
        yield
    except ValueError as fault:
        raise ConfigError(
            f"{name!r} is no name of a repository such as user/learner ({fault})."
        ) from fault
    except Exception as fault:  # the hub's client and its transport have faults of their own
        said = str(fault).strip().splitlines() or [type(fault).__name__]
        raise DualmixError(
            f"The hub refuses {name!r} ({type(fault).__name__}: {said[0][:200]}): see that the "
            "name is right and that you are logged in (`hf auth login`)."
        ) from fault
