"""The graphs between the steps of the compiler, and what its parts are called."""
