#!/bin/sh -eu
# Fills fuzz/corpus/TARGET with seeds made of the repository's corpus. Needs llvm-objcopy; OBJCOPY names another one.
cd "$(dirname "$0")"
objcopy=${OBJCOPY:-llvm-objcopy-19}
for target in open link btf core validate text engines print maps; do
    mkdir -p "corpus/$target"
done

# A section of an object as a file.
section() {
    "$objcopy" --dump-section "$1=$3" "$2" /dev/null 2>/dev/null && [ -s "$3" ] || rm -f "$3"
}

# The first argument as four bytes, little endian.
word() {
    printf '%b' "$(printf '\\0%03o\\0%03o\\0%03o\\0%03o' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24)))"
}

find ../corpus -name '*.o' | sort | while read -r object; do
    name=$(echo "${object#../corpus/}" | tr / - | sed 's/\.bpf\.o$//')
    cp "$object" "corpus/open/$name"
    cp "$object" "corpus/link/$name"
    section .BTF "$object" "corpus/btf/$name"
    section .text "$object" "corpus/validate/$name"
    if [ -e "corpus/btf/$name" ]; then
        { word "$(wc -c <"corpus/btf/$name")"; cat "corpus/btf/$name" "$object"; } >"corpus/core/$name"
    fi
    # Bytes like others, as far as choices are concerned.
    for target in engines print maps; do
        tail -c +65 "$object" | head -c 2500 >"corpus/$target/$name"
    done
done
cp corpus/validate/* corpus/text/
# The body of each case of instructions.
awk '/^ *run /{out = ""} out != "" {print > out} /^case /{if (out != "") close(out); out = sprintf("corpus/text/case-%04d", ++count)}' \
    ../corpus/insn/*.case
