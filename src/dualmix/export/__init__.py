"""Models that leave the house: a learner's predictor as ONNX or TorchScript, a learner on a hub.

It imports runs and all rooms above it, and packages that the extras `onnx` and `hub` bring. What is
exported predicts and no longer learns.
"""
