"""Iterative baselines: ES, MeZO and the task-adapted ZO-Finetuner, as makers of lineages.

Nothing is imported here: the aggregator computes steps, and must not load torch for it. Only
`generator`, `preparation` and `export` need torch.
"""
