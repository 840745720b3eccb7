"""Methods, population seeds and the candidate weights that descriptors define.

Nothing is imported here: clients and the aggregator need `descriptor`, which is light, and must
not load torch for it.
"""
