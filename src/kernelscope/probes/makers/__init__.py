"""Makers of generated kernels (`async_compile.maker(…)`): what each one tells about its arguments."""
