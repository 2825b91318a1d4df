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
