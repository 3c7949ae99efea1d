/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stock libbpf on our corpus: objects made for twinbpf must open and load there too, and the kernel must give the
 * results that the corpus expects of our machine.
 *
 *     corpus probe                  exit status 77 and a reason where bpf(2) is not to be had
 *     corpus load OBJECT...         opens and loads each, prints a line each
 *     corpus run OBJECT PROGRAM HEX loads, runs the program once on this packet, prints result and packet
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static char messages[1 << 16];

/* Keeps what libbpf says, to print it only where something failed. */
static int keep(enum libbpf_print_level level, const char *format, va_list args)
{
	size_t used = strlen(messages);

	if (level == LIBBPF_DEBUG)
		return 0;
	return vsnprintf(messages + used, sizeof(messages) - used, format, args);
}

static int probe(void)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "probe", 4, 4, 1, NULL);

	if (fd < 0) {
		printf("bpf(BPF_MAP_CREATE): %s\n", strerror(errno));
		return 77;
	}
	return 0;
}

static struct bpf_object *load(const char *path)
{
	struct bpf_object *object;

	messages[0] = 0;
	object = bpf_object__open(path);
	if (!object) {
		printf("FAILED %s: open: %s\n%s", path, strerror(errno), messages);
		return NULL;
	}
	if (bpf_object__load(object)) {
		printf("FAILED %s: load: %s\n%s", path, strerror(errno), messages);
		bpf_object__close(object);
		return NULL;
	}
	return object;
}

static int load_all(char **paths)
{
	int failures = 0;

	for (; *paths; paths++) {
		struct bpf_object *object = load(*paths);
		struct bpf_program *program;
		struct bpf_map *map;
		int programs = 0, maps = 0;

		if (!object) {
			failures++;
			continue;
		}
		bpf_object__for_each_program(program, object)
			programs += bpf_program__fd(program) >= 0;
		bpf_object__for_each_map(map, object)
			maps += bpf_map__fd(map) >= 0;
		printf("loaded %s: %d programs, %d maps\n", *paths, programs, maps);
		bpf_object__close(object);
	}
	return failures ? 1 : 0;
}

static size_t from_hex(const char *hex, unsigned char *bytes, size_t size)
{
	size_t length = 0;
	unsigned int byte;

	while (length < size && sscanf(hex + 2 * length, "%2x", &byte) == 1)
		bytes[length++] = byte;
	return length;
}

static int run(const char *path, const char *name, const char *hex)
{
	unsigned char packet[2048], after[4096];
	struct bpf_program *program;
	struct bpf_object *object = load(path);
	LIBBPF_OPTS(bpf_test_run_opts, options);
	unsigned int i;

	if (!object)
		return 1;
	program = bpf_object__find_program_by_name(object, name);
	if (!program) {
		printf("FAILED %s: no program %s\n", path, name);
		return 1;
	}
	options.data_in = packet;
	options.data_size_in = from_hex(hex, packet, sizeof(packet));
	options.data_out = after;
	options.data_size_out = sizeof(after);
	options.repeat = 1;
	if (bpf_prog_test_run_opts(bpf_program__fd(program), &options)) {
		printf("FAILED %s:%s: run: %s\n", path, name, strerror(errno));
		return 1;
	}
	printf("%d ", (int)options.retval);
	for (i = 0; i < options.data_size_out; i++)
		printf("%02x", after[i]);
	printf("\n");
	bpf_object__close(object);
	return 0;
}

int main(int argc, char **argv)
{
	libbpf_set_print(keep);
	if (argc == 2 && !strcmp(argv[1], "probe"))
		return probe();
	if (argc > 2 && !strcmp(argv[1], "load"))
		return load_all(argv + 2);
	if (argc == 5 && !strcmp(argv[1], "run"))
		return run(argv[2], argv[3], argv[4]);
	fprintf(stderr, "usage: corpus probe | load OBJECT... | run OBJECT PROGRAM HEX\n");
	return 2;
}
