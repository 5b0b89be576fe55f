"""Online class-incremental learning: learners that see each batch once and keep recognising the old
classes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualmix.config.compose import Composed as Composed
    from dualmix.config.compose import compose as compose
    from dualmix.config.fields import Config as Config
    from dualmix.data import Data as Data
    from dualmix.data import Decoded as Decoded
    from dualmix.data import Images as Images
    from dualmix.data import load as load_data
    from dualmix.data import register_dataset as register_dataset
    from dualmix.data.arrays import from_arrays as from_arrays
    from dualmix.data.stream import Plan as Plan
    from dualmix.data.stream import Stream as Stream
    from dualmix.data.stream import plan as plan
    from dualmix.errors import BusyError as BusyError
    from dualmix.errors import ConfigError as ConfigError
    from dualmix.errors import DataError as DataError
    from dualmix.errors import DualmixError as DualmixError
    from dualmix.errors import InputError as InputError
    from dualmix.errors import StoreError as StoreError
    from dualmix.errors import TrainingError as TrainingError
    from dualmix.learn.augment import transform as transform
    from dualmix.learn.backbones import ReducedResNet18 as ReducedResNet18
    from dualmix.learn.backbones import register_backbone as register_backbone
    from dualmix.learn.memory import Memory as Memory
    from dualmix.learn.network import Classifier as Classifier
    from dualmix.learn.replay import Replay as Replay
    from dualmix.learn.sampling import Reservoir as Reservoir
    from dualmix.learn.sampling import Uniform as Uniform
    from dualmix.learn.types import Batch as Batch
    from dualmix.learn.types import Learner as Learner
    from dualmix.learn.types import Placement as Placement
    from dualmix.methods import AGEM as AGEM
    from dualmix.methods import ASER as ASER
    from dualmix.methods import DVC as DVC
    from dualmix.methods import ER as ER
    from dualmix.methods import ERACE as ERACE
    from dualmix.methods import GSS as GSS
    from dualmix.methods import MIR as MIR
    from dualmix.methods import NCM as NCM
    from dualmix.methods import SCR as SCR
    from dualmix.methods import SLDA as SLDA
    from dualmix.methods import DERpp as DERpp
    from dualmix.methods import FeCAM as FeCAM
    from dualmix.methods import Finetune as Finetune
    from dualmix.methods import GDumb as GDumb
    from dualmix.methods import Mixing as Mixing
    from dualmix.methods import RanDumb as RanDumb
    from dualmix.methods import Ridge as Ridge
    from dualmix.methods.dualmix import AdpMix as AdpMix
    from dualmix.methods.dualmix import EnMix as EnMix
    from dualmix.methods.dualmix import View as View
    from dualmix.registry import Method as Method
    from dualmix.registry import register as register
    from dualmix.rng import Rng as Rng
    from dualmix.runs.build import build as build
    from dualmix.runs.build import create as create
    from dualmix.runs.build import load as load
    from dualmix.runs.build import save as save
    from dualmix.runs.build import to_bytes as to_bytes
    from dualmix.runs.evaluate import Evaluation as Evaluation
    from dualmix.runs.evaluate import evaluate as evaluate
    from dualmix.runs.run import Result as Result
    from dualmix.runs.run import train as train
    from dualmix.settings import setting as setting
    from dualmix.store.opening import open_store as open_store
    from dualmix.store.store import Store as Store

    __version__: str

_HOMES = {
    "config.compose": ("Composed", "compose"),
    "config.fields": ("Config",),
    "data": ("Data", "Decoded", "Images", "load_data", "register_dataset"),
    "data.arrays": ("from_arrays",),
    "data.stream": ("Plan", "Stream", "plan"),
    "errors": (
        "BusyError",
        "ConfigError",
        "DataError",
        "DualmixError",
        "InputError",
        "StoreError",
        "TrainingError",
    ),
    "learn.augment": ("transform",),
    "learn.memory": ("Memory",),
    "learn.backbones": ("ReducedResNet18", "register_backbone"),
    "learn.network": ("Classifier",),
    "learn.replay": ("Replay",),
    "learn.sampling": ("Reservoir", "Uniform"),
    "learn.types": ("Batch", "Learner", "Placement"),
    "methods": (
        "AGEM",
        "ASER",
        "DVC",
        "ER",
        "ERACE",
        "GSS",
        "MIR",
        "NCM",
        "SCR",
        "SLDA",
        "DERpp",
        "FeCAM",
        "Finetune",
        "GDumb",
        "Mixing",
        "RanDumb",
        "Ridge",
    ),
    "methods.dualmix": ("AdpMix", "EnMix", "View"),
    "registry": ("Method", "register"),
    "rng": ("Rng",),
    "runs.build": ("build", "create", "load", "save", "to_bytes"),
    "runs.evaluate": ("Evaluation", "evaluate"),
    "runs.run": ("Result", "train"),
    "settings": ("setting",),
    "store.opening": ("open_store",),
    "store.store": ("Store",),
}
_AT_HOME = {"load_data": "load"}
"""What a name is called in its own module."""
_RENAMED = {"value": "setting"}
"""Older public names, which still work in this release."""
__all__ = sorted(name for names in _HOMES.values() for name in names)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that the command line starts without
    torch.
    """
    if name == "__version__":
        return import_module("importlib.metadata").version("dualmix")
    if name in _RENAMED:
        import_module("dualmix.deprecate").renamed(name, _RENAMED[name], gone_in="0.2")
        name = _RENAMED[name]
    for home, names in _HOMES.items():
        if name in names:
            public = getattr(import_module(f"dualmix.{home}"), _AT_HOME.get(name, name))
            globals()[name] = public
            return public
    raise AttributeError(f"module 'dualmix' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
