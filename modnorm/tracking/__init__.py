"""Experiment trackers: MLflow and Weights & Biases log a run while it goes.

Each needs an extra of its own: `modnorm[mlflow]`, `modnorm[wandb]`. `registry` finds a tracker by
name, `background` keeps a slow or broken tracker from the run.
"""
