#!/bin/bash -eu
# Builds every target without sanitizer (the code is Rust; faults of generated code are caught by the machine), with
# assertions, and packs seeds made of the corpus.
cargo fuzz build --sanitizer none --strip-dead-code -O --debug-assertions
for target in $(cargo fuzz list); do
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
done
OBJCOPY=llvm-objcopy fuzz/seeds.sh
for folder in fuzz/corpus/*; do
    zip -q -j -r "$OUT/$(basename "$folder")_seed_corpus.zip" "$folder"
done
