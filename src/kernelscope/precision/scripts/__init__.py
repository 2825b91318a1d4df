"""`kernelscope precision script.py`: the script runs in a child, the parent prints."""
