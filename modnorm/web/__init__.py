"""The web page of runs: read-only, rendered on the server, without external assets.

`sources` is the interface of a run; `run_directories` implements it for run directories.
`population` sorts and filters candidates. `pages` renders, `app` serves.
"""
