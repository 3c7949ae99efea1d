// What libbpf loads into this kernel: each program of each object alone, nothing pinned.
//
//   loads OBJECT...
//
// prints, separated by tabs:
//   object PATH
//   prog SECTION NAME 0|ERRNO
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int silent(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0;
}

/* The number of programs, or -1; loads the one with this index. */
static int load_one(const char *path, int wanted)
{
	struct bpf_object *object = bpf_object__open(path);
	struct bpf_program *prog, *only = NULL;
	struct bpf_map *map;
	int count = 0, error;

	if (!object)
		return -1;
	bpf_object__for_each_map(map, object)
		bpf_map__set_pin_path(map, NULL);
	bpf_object__for_each_program(prog, object) {
		bpf_program__set_autoload(prog, count == wanted);
		if (count++ == wanted)
			only = prog;
	}
	if (only) {
		error = bpf_object__load(object);
		printf("prog\t%s\t%s\t%d\n", bpf_program__section_name(only), bpf_program__name(only), -error);
	}
	bpf_object__close(object);
	return count;
}

int main(int argc, char **argv)
{
	libbpf_set_print(silent);
	for (int i = 1; i < argc; i++) {
		int count = 1;

		printf("object\t%s\n", argv[i]);
		for (int wanted = 0; wanted < count; wanted++)
			count = load_one(argv[i], wanted);
		fflush(stdout);
	}
	return 0;
}
