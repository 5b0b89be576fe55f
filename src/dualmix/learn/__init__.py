"""One step of learning: batches, memory, network, augmentation, mixing, losses and the rehearsal
loop.

It knows no file, no setting and no clock; it imports torch, numpy and the package's root, nothing
else of the house."""
