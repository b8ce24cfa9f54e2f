"""The whole jobs of those who import the package: build a map, localize a drive, evaluate.

`kbf_localization/__init__.py` exports them beside the parts that they are made of.
"""
