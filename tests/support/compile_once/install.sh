#!/bin/sh
# install.sh FOLDER: build the program, as the g++ and the c++ of FOLDER/bin, which is then to be first in PATH.
set -eu
here=$(dirname "$0")
mkdir -p "$1/bin" "$1/real" "$1/store"
"${CXX:-g++}" -std=c++17 -O1 "$here/main.cpp" -o "$1/compile_once"
for name in g++ c++; do
  if real=$(command -v "$name"); then
    ln -s "$real" "$1/real/$name"
    ln -s ../compile_once "$1/bin/$name"
  fi
done
# Linking against torch is a third of a small build, and half as long with gold. The code is the same.
echo 'int value() { return 1; }' >"$1/try.cpp"
if "${CXX:-g++}" -fuse-ld=gold -shared -fPIC "$1/try.cpp" -o "$1/try.so" 2>"$1/try.said" && test ! -s "$1/try.said"; then
  echo -fuse-ld=gold >"$1/linker"
fi
rm -f "$1/try.cpp" "$1/try.so" "$1/try.said"
