"""The tables and figures of the literature, computed again with latlin: `python -m reproduction --list`.

One file per table or figure, found by `registry`; the pages of full runs are kept in docs/reproduced.
"""
