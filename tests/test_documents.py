"""The documents name files that are there, and what they show works as printed."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

import dualmix
from dualmix.registry import load_plugin, presets

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "dualmix"
PAGES = (
    "start",
    "stream",
    "own",
    "data",
    "runs",
    "metrics",
    "architecture",
    "cluster",
    "extend",
    "protocols",
    "references",
    "reproduce",
    "serve",
)
DOCUMENTS = ("CONTRIBUTING.md", *(f"docs/{page}.md" for page in PAGES))
PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|md|json|yaml|cff|txt|toml|html))`")
NEW = {"src/dualmix/methods/oldest.py", "tests/methods/test_oldest.py"}
"""What CONTRIBUTING tells a newcomer to write."""
MADE = {"config.json", "facts.json", "holder.json", "probes.json", "tune-er+dualmix.json"}
"""Files of a run or of a command."""


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_is_named_is_there(name: str) -> None:
    for path in set(PATH.findall(text(name))) - NEW - MADE:
        places = (ROOT / path, PACKAGE / path, PACKAGE / "report" / path)
        assert any(place.is_file() for place in places), f"{name} names {path}"


@pytest.mark.parametrize("name", [*DOCUMENTS, "README.md", "CHANGELOG.md"])
def test_every_link_within_the_repository_leads_somewhere(name: str) -> None:
    site = re.findall(r"[\w-]+\.md", text("mkdocs.yml"))  # `make docs` looks these up
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text(name)):
        there = ((ROOT / name).parent / target).exists()
        assert there or (name.startswith("docs/") and target in site), f"{name} links to {target}"


def test_every_room_is_drawn() -> None:
    drawn = set(re.findall(r"^   (\w+) {2,}\S", text("docs/architecture.md"), re.MULTILINE))
    assert drawn == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def test_every_method_has_its_paper() -> None:
    named = re.findall(r"^\| `([\w+-]+)` \|", text("docs/references.md"), re.MULTILINE)
    kinds = {preset.kind for preset in presets().values()}
    assert kinds - set(named) == {"finetune"}, "finetune is a bound and has no paper"


def test_the_method_of_contributing_works_as_printed(tmp_path: Path) -> None:
    (block,) = re.findall(r"   ```python\n(.*?)   ```", text("CONTRIBUTING.md"), re.DOTALL)
    other = textwrap.dedent(block).replace('"oldest"', '"as-printed"')  # whoever follows has it
    (tmp_path / "oldest.py").write_text(other)
    load_plugin(tmp_path / "oldest.py")
    learner = dualmix.create("as-printed+dualmix", shape=(1, 8, 8), memory=6, seed=0)
    rng = np.random.default_rng(0)
    for label in (0, 1):
        learner.observe(rng.integers(0, 256, (10, 1, 8, 8), dtype=np.uint8), [label] * 10)
    assert len(learner.memory) == 6
    assert set(learner.predict(np.zeros((2, 1, 8, 8), np.uint8))) <= {0, 1}


def test_every_page_is_in_the_site() -> None:
    pages = set(re.findall(r"[\w-]+\.md", text("mkdocs.yml")))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= pages


def test_the_cards_of_the_methods_are_those_of_the_code() -> None:
    from studies.method_cards import PAGE, card_page

    assert PAGE.read_text(encoding="utf-8") == card_page(), "run: python -m studies.method_cards"


def test_the_parts_of_the_protocols_page_work_as_printed(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", text("docs/protocols.md"), re.DOTALL)
    (tmp_path / "ring.py").write_text(block)
    load_plugin(tmp_path / "ring.py")
    learner = dualmix.create("ring+dualmix", shape=(1, 8, 8), memory=15, seed=0)
    rng = np.random.default_rng(0)
    seen = []
    for label in (0, 1, 2):
        seen.append(rng.integers(0, 256, (10, 1, 8, 8), dtype=np.uint8))
        learner.observe(seen[-1], [label] * 10)
    newest = np.concatenate(seen)[-15:].transpose(0, 2, 3, 1)
    held = learner.memory.x.numpy()
    assert sorted(map(bytes, held)) == sorted(map(bytes, newest)), "the newest images are kept"


def test_the_method_and_the_data_of_the_extend_page_work_as_printed(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", text("docs/extend.md"), re.DOTALL)
    (tmp_path / "mine.py").write_text("\n\n".join(blocks))
    load_plugin(tmp_path / "mine.py")
    learner = dualmix.create("absent+dualmix", shape=(1, 8, 8), memory=6, seed=0, bonus=2)
    images = dualmix.load_data(dualmix.Data(name="bars"))
    assert images.classes == ("first", "second", "third", "fourth") and len(images.train_y) == 40
    learner.observe(images.train_x[:10].transpose(0, 3, 1, 2), images.train_y[:10])
    assert len(learner.memory) == 6


def test_one_version() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    citation = yaml.safe_load(text("CITATION.cff"))
    assert citation["version"] == project["version"]
    paper = citation["preferred-citation"]
    assert paper["title"] in text("README.md")
    assert all(author["family-names"] in text("README.md") for author in paper["authors"])


def test_the_changelog_has_its_sections() -> None:
    heads = re.findall(r"^###? (.*)$", text("CHANGELOG.md"), re.MULTILINE)
    assert heads[0] == "Unreleased"
    allowed = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert {head for head in heads if not re.match(r"Unreleased|\d", head)} <= allowed
