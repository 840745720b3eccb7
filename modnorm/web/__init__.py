"""The web page of runs: read-only, rendered on the server, without external assets.

`sources` says what a run must offer and `run_directories` offers it from run directories.
`population` sorts and filters candidates. `pages` renders, `figures` draws, `app` serves.
"""
