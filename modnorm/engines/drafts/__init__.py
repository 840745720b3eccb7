"""Drafts: tokens that a candidate will probably say, from other candidates' answers."""
