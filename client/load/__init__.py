"""Load tests: many calls at a time, each measured and its response checked.

`generator` makes calls of any kind; `target` makes calls to a model server; `report` presents the results.
"""
