"""docs/cluster.md: its commands are understood and its manifest holds together."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

TEXT = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
JOINED = TEXT.replace("\\\n", " ")
COMMANDS = sorted(
    {
        found.split("#")[0].strip()
        for found in re.findall(r"dualmix (?:sweep|status) [^\n`]*", JOINED)
        if "..." not in found
    }
)


def test_the_commands_are_found() -> None:
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command: str) -> None:
    from dualmix.cli.flags import split
    from dualmix.cli.parser import make_parser
    from dualmix.config.compose import compose

    words = [word.replace("$SLURM_CPUS_PER_TASK", "16") for word in shlex.split(command)[1:]]
    parser = make_parser()
    words, overrides, faults, _ = split(words, parser)
    given = parser.parse_args(words)
    assert faults == []
    assert given.store in ("/shared/runs", "s3://bucket/runs")
    if hasattr(given, "workers"):
        given.prepare(given, overrides, faults)
        compose("er", given.overrides)
        assert not given.gpus or overrides["device"] == "cuda"


def test_the_manifest_holds_together() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    manifest = yaml.safe_load(block)
    cluster = manifest["spec"]["rayClusterSpec"]
    assert manifest["kind"] == "RayJob" and manifest["spec"]["entrypoint"] in COMMANDS
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for pod in pods:
        spec = pod["template"]["spec"]
        mounted = {
            mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]
        }
        assert mounted == {volume["name"]: "/shared" for volume in spec["volumes"]}
    pinned = dict(
        re.findall(
            r"^(\S+)==(\S+)$",
            (Path(__file__).parents[2] / "constraints.txt").read_text(),
            re.MULTILINE,
        )
    )
    assert cluster["rayVersion"] == pinned["ray"] and f"ray:{pinned['ray']}-py311" in TEXT


def test_scripts_are_shell(tmp_path: Path) -> None:
    import subprocess

    scripts = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
