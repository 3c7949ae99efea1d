#!/bin/sh
# Builds every corpus object from the C source beside it; tools/ and scripts/perf/ have sources only.
#
#   corpus/build.sh            compile NAME.bpf.c to NAME.bpf.o, all of them
#   corpus/build.sh FILE...    only these sources
#   corpus/build.sh --check    compile to a temporary directory and compare code, relocations and data with the
#                              committed objects; exit status 1 and the differences if any
#
# Needs clang-19 and llvm-19 (CLANG, OBJDUMP, STRIP override the names), the kernel's user headers and libbpf's.
# Objects are committed so that tests need neither. They depend on the sources alone: no absolute path of this
# machine gets in, and DWARF is stripped except where the source asks to keep it. In a source,
#
#   // build: -mcpu=v4 -mllvm -bpf-stack-size=4096     adds flags, later ones win
#   // build: bpfeb                                    compiles for big-endian BPF
#   // build: no-btf | dwarf                           compiles without -g | keeps the DWARF
set -eu
export LC_ALL=C

cd "$(dirname "$0")"
clang=${CLANG:-clang-19}
objdump=${OBJDUMP:-llvm-objdump-19}
strip=${STRIP:-llvm-strip-19}

# compile SOURCE OBJECT
compile() {
	flags="-mcpu=v3" target=bpf debug=-g keep=
	for word in $(sed -n 's|^// build: *||p' "$1"); do
		case $word in
		bpfeb) target=bpfeb ;;
		no-btf) debug=-g0 ;;
		dwarf) keep=yes ;;
		*) flags="$flags $word" ;;
		esac
	done
	# From the root, so that names of sources begin there and clang finds them to quote their lines.
	# shellcheck disable=SC2086 # flags are words
	cd ..
	"$clang" -O2 $debug -target $target -Wall -Wextra -Wno-unused-parameter -Werror $flags \
		-I include -idirafter "/usr/include/$(uname -m)-linux-gnu" \
		-fdebug-compilation-dir=. -c "corpus/$1" -o "$2"
	[ -n "$keep" ] || [ $debug = -g0 ] || "$strip" -g "$2"
	cd corpus
}

# What must not change: code with relocations, and initialised data.
contents() {
	"$objdump" -dr "$1" | sed 1,2d
	"$objdump" -r "$1" | sed 1,2d | sed -n '/\.\(data\|rodata\|maps\)/,/^$/p'
	"$objdump" -s "$1" | sed 1,2d | awk '/^Contents of section/ { on = /section \.(ro)?data|section \.maps|section license/ } on'
}

mode=build
if [ "${1-}" = --check ]; then
	mode=check
	shift
fi
if [ $# -eq 0 ]; then
	flag=
	[ $mode = build ] || flag=--check
	# shellcheck disable=SC2086 # no flag is no word
	# Those of tools/ need structs that `twinbpf run` makes of the running kernel's events; those of scripts/perf/ are
	# compiled by `twinbpf script`.
	find . -name '*.bpf.c' ! -path './tools/*' ! -path './scripts/perf/*' | sort | sed 's|^\./||' | xargs -P "$(nproc)" -n 8 ./build.sh $flag
	exit
fi

if [ $mode = build ]; then
	for source; do
		compile "$source" "corpus/${source%.c}.o"
	done
	exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
status=0
for source; do
	object=${source%.c}.o
	compile "$source" "$scratch/object.o"
	! cmp -s "$object" "$scratch/object.o" || continue # another clang 19 may differ in what does not matter
	contents "$scratch/object.o" >"$scratch/built"
	contents "$object" >"$scratch/committed" || true
	if ! diff -u "$scratch/committed" "$scratch/built" >"$scratch/diff"; then
		echo "$object does not match $source:"
		cat "$scratch/diff"
		status=1
	fi
done
exit $status
