"""The commands of `kbf experiment`, one a file; `cli/experiment.py` lists them."""
