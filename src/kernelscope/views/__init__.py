"""How results are shown. A view never computes."""
