"""Online class-incremental learning: learners that see each batch once and keep recognising the old
classes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualmix.config.compose import Composed as Composed
    from dualmix.config.compose import Config as Config
    from dualmix.config.compose import compose as compose
    from dualmix.data import Data as Data
    from dualmix.data import Decoded as Decoded
    from dualmix.data import Images as Images
    from dualmix.data import load as load_data
    from dualmix.data import register_dataset as register_dataset
    from dualmix.data.stream import Plan as Plan
    from dualmix.data.stream import Stream as Stream
    from dualmix.data.stream import plan as plan
    from dualmix.errors import BusyError as BusyError
    from dualmix.errors import ConfigError as ConfigError
    from dualmix.errors import DataError as DataError
    from dualmix.errors import DualmixError as DualmixError
    from dualmix.errors import InputError as InputError
    from dualmix.errors import StoreError as StoreError
    from dualmix.learn.augment import transform as transform
    from dualmix.learn.learners.replay import Replay as Replay
    from dualmix.learn.memory import Memory as Memory
    from dualmix.learn.mixing import AdpMix as AdpMix
    from dualmix.learn.mixing import EnMix as EnMix
    from dualmix.learn.mixing import View as View
    from dualmix.learn.network import Classifier as Classifier
    from dualmix.learn.network import ReducedResNet18 as ReducedResNet18
    from dualmix.learn.policies.reservoir import Reservoir as Reservoir
    from dualmix.learn.policies.uniform import Uniform as Uniform
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
    from dualmix.methods import SCR as SCR
    from dualmix.methods import DERpp as DERpp
    from dualmix.methods import Finetune as Finetune
    from dualmix.methods import GDumb as GDumb
    from dualmix.methods import Mixing as Mixing
    from dualmix.registry import Method as Method
    from dualmix.registry import register as register
    from dualmix.rng import Rng as Rng
    from dualmix.runs.build import build as build
    from dualmix.runs.build import create as create
    from dualmix.runs.build import load as load
    from dualmix.runs.build import save as save
    from dualmix.runs.run import Result as Result
    from dualmix.runs.run import run as train
    from dualmix.settings import value as value
    from dualmix.store.folder import Store as Store
    from dualmix.store.remote import open_store as open_store

_HOMES = {
    "config.compose": ("Composed", "Config", "compose"),
    "data": ("Data", "Decoded", "Images", "load_data", "register_dataset"),
    "errors": ("BusyError", "ConfigError", "DataError", "DualmixError", "InputError", "StoreError"),
    "learn.learners.replay": ("Replay",),
    "learn.memory": ("Memory",),
    "methods": (
        "AGEM",
        "ASER",
        "DVC",
        "ER",
        "ERACE",
        "GSS",
        "MIR",
        "SCR",
        "DERpp",
        "Finetune",
        "GDumb",
        "Mixing",
    ),
    "learn.mixing": ("AdpMix", "EnMix", "View"),
    "learn.network": ("Classifier", "ReducedResNet18"),
    "learn.policies.reservoir": ("Reservoir",),
    "learn.policies.uniform": ("Uniform",),
    "runs.build": ("build", "create", "load", "save"),
    "registry": ("Method", "register"),
    "store.remote": ("open_store",),
    "rng": ("Rng",),
    "runs.run": ("Result", "train"),
    "settings": ("value",),
    "store.folder": ("Store",),
    "data.stream": ("Plan", "Stream", "plan"),
    "learn.augment": ("transform",),
    "learn.types": ("Batch", "Learner", "Placement"),
}
_RENAMED = {"load_data": "load", "train": "run"}
__all__ = sorted(name for names in _HOMES.values() for name in names)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that the command line starts without
    torch.
    """
    for home, names in _HOMES.items():
        if name in names:
            found = getattr(import_module(f"dualmix.{home}"), _RENAMED.get(name, name))
            globals()[name] = found
            return found
    raise AttributeError(f"module 'dualmix' has no attribute {name!r}")
