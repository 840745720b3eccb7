"""Running a suite: many experiments on one lab, resumed where they were broken off.

Nothing is imported here: a suite is read and checked without a lab, and so without gRPC.
"""
