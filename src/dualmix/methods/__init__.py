"""One method, one file: its paper, its settings, its own rule and its own loop if it has one.

A method imports learn, the package's root and the settings that methods share (`common`,
`rehearsal`, and `dualmix`, `ema` and `mkd`, which attach to every rehearsal), never another
method's file."""

from dualmix.methods import recommended as recommended
from dualmix.methods.agem import AGEM
from dualmix.methods.aser import ASER
from dualmix.methods.common import Augmenting, Descent, Remembering, Sampling
from dualmix.methods.derpp import DERpp
from dualmix.methods.dualmix import Mixing
from dualmix.methods.dvc import DVC
from dualmix.methods.ema import Averaging
from dualmix.methods.er import ER
from dualmix.methods.er_ace import ERACE
from dualmix.methods.fecam import FeCAM
from dualmix.methods.finetune import Finetune
from dualmix.methods.gdumb import GDumb
from dualmix.methods.gss import GSS
from dualmix.methods.mir import MIR
from dualmix.methods.mkd import Distilling
from dualmix.methods.ncm import NCM
from dualmix.methods.randumb import RanDumb
from dualmix.methods.rehearsal import Host, Rehearsal
from dualmix.methods.ridge import Ridge
from dualmix.methods.scr import SCR
from dualmix.methods.slda import SLDA

__all__ = [
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
    "Augmenting",
    "Averaging",
    "DERpp",
    "Descent",
    "Distilling",
    "FeCAM",
    "Finetune",
    "GDumb",
    "Host",
    "Mixing",
    "RanDumb",
    "Rehearsal",
    "Remembering",
    "Ridge",
    "Sampling",
]
