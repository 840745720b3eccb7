"""Running a suite: its experiments on one lab, resumed after an interruption.

This module imports nothing, so that a suite can be read and checked without gRPC.
"""
