"""The page of a run: what training wrote down, drawn.

In: the folder of a run.  Out: one HTML file that opens without a network.  Next: page.py
"""
