"""Iterative baselines: the steps of ES, MeZO and the task-adapted ZO-Finetuner.

The package imports nothing, since the aggregator computes steps without torch. Only `generator`
and `preparation` need torch.
"""
