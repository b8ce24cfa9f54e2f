"""The Localizer, shared by the node and by offline replay."""
