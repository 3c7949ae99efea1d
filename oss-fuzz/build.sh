#!/bin/bash -eu
# Builds every target without sanitizer (the code is Rust; faults of generated code are caught by the machine), with
# assertions, and packs the objects of the corpus as seeds.
cargo fuzz build --sanitizer none --strip-dead-code -O --debug-assertions
for target in $(cargo fuzz list); do
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
done
for target in open link; do
    find corpus -name '*.o' -print0 | xargs -0 zip -q -j "$OUT/${target}_seed_corpus.zip"
done
