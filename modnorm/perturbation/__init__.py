"""Methods, population seeds and the candidate weights that descriptors define.

The package imports nothing, so that clients and the aggregator import `descriptor` without torch.
"""
