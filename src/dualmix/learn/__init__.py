"""One step of learning: batches, memory, network, augmentation, mixing, losses and the rehearsal
loop.

It knows no file, no setting and no clock. It imports torch, numpy and the package's root; a method
imports it, it never imports a method."""
