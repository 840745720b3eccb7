"""Drafts: tokens that a candidate will probably say, from other candidates' answers.

All candidates answer the same prompts with nearly the same weights. An engine verifies several
draft tokens in one step, so a good draft saves steps. A wrong draft costs time, never an answer.
"""
