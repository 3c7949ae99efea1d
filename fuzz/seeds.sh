#!/bin/sh -eu
# Fills fuzz/corpus/TARGET with seeds made of the repository's corpus. Needs llvm-objcopy and cc; OBJCOPY and CC name others.
cd "$(dirname "$0")"
objcopy=${OBJCOPY:-llvm-objcopy-19}
for target in open link btf core validate text engines print maps probe; do
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
# Small programs with debug information of each version and level.
for version in 4 5; do
    for level in 0 2; do
        "${CC:-cc}" -nostdlib -static -g -gdwarf-$version -O$level -o "corpus/probe/dwarf-$version-$level" -x c - <<'END'
struct in { int x, y; };
struct rec { int a; unsigned flags : 3; struct in in; const char *name; };
static inline __attribute__((always_inline)) int inner(struct in *i, long k) { return i->x * i->y + k; }
__attribute__((noinline)) int work(struct rec *r, int n) { struct in i = { n, n + 1 }; return inner(&i, r->a) + inner(&r->in, 3); }
void _start(void) { struct rec r = { 1, 2, { 3, 4 }, "name" }; work(&r, 5); for (;;); }
END
    done
done
