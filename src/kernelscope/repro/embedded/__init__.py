"""Parts of every repro script. Their text goes into the script, so they import torch alone."""
