"""The flight recorder: the last launches in a memory-mapped file that outlives the process."""
