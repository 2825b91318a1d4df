"""Building, caching and loading C++: the compiler, the folder of built libraries, libraries on demand."""
