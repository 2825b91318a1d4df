"""The compiled function as a whole against the uncompiled one."""
