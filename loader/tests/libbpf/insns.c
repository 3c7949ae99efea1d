// What libbpf gives the kernel: opens each object, has libbpf load it, and prints every BPF_PROG_LOAD in a form
// without file descriptors (the index of a map stands for its descriptor). The kernel never sees these programs:
// the call of syscall(2) that libbpf makes ends here. Map creation that the kernel refuses is made up as well, so that
// a kernel without some map type tells as much as one with it. What objects pin is pinned nowhere.
//
//   insns [-t TYPES] OBJECT...
//
// (with -t, CO-RE finds the types of this file in place of the kernel's)
// prints, separated by tabs:
//   object PATH
//   prog SECTION NAME TYPE ATTACH_TYPE ATTACH_BTF_ID INSNS FUNC_INFO LINE_INFO    (the last three in hex)
//   btf TYPES                         what goes to BPF_BTF_LOAD, in hex
//   fail SECTION NAME LAST_MESSAGE    a program that libbpf does not get that far with
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct bpf_object *object;
static char message[512];
static char made_up[4096];
static char *done;
static const char *types_path;

static int make_up(void)
{
	int fd = memfd_create("made up", 0);

	if (fd >= 0 && fd < (int)sizeof(made_up))
		made_up[fd] = 1;
	return fd;
}

static void hex(const void *data, size_t size)
{
	const unsigned char *bytes = data;

	putchar('\t');
	for (size_t i = 0; i < size; i++)
		printf("%02x", bytes[i]);
}

static int map_index(int fd)
{
	struct bpf_map *map;
	int index = 0;

	bpf_object__for_each_map(map, object) {
		if (bpf_map__fd(map) == fd)
			return index;
		index++;
	}
	fprintf(stderr, "descriptor %d is no map's\n", fd);
	exit(1);
}

static void records(__u64 address, __u32 count, __u32 size, __u32 wanted)
{
	const char *record = (const char *)(unsigned long)address;

	putchar('\t');
	for (__u32 i = 0; i < count; i++, record += size)
		for (__u32 byte = 0; byte < wanted; byte++)
			printf("%02x", (unsigned char)record[byte]);
}

static void dump(struct bpf_program *prog, const union bpf_attr *attr)
{
	size_t size = attr->insn_cnt * sizeof(struct bpf_insn);
	struct bpf_insn *insns = malloc(size);

	memcpy(insns, (void *)(unsigned long)attr->insns, size);
	for (__u32 i = 0; i < attr->insn_cnt; i++) {
		struct bpf_insn *insn = &insns[i];

		if (insn->code != (BPF_LD | BPF_IMM | BPF_DW))
			continue;
		if (insn->src_reg == BPF_PSEUDO_MAP_FD || insn->src_reg == BPF_PSEUDO_MAP_VALUE)
			insn->imm = map_index(insn->imm);
		i++;
	}
	printf("prog\t%s\t%s\t%u\t%u\t%u", bpf_program__section_name(prog), bpf_program__name(prog), attr->prog_type,
	       attr->expected_attach_type, attr->attach_btf_id);
	hex(insns, size);
	records(attr->func_info, attr->func_info_cnt, attr->func_info_rec_size, 8);
	records(attr->line_info, attr->line_info_cnt, attr->line_info_rec_size, 16);
	putchar('\n');
	free(insns);
}

// libbpf's instructions lie where bpf_program__insns says; those of its probes do not.
static struct bpf_program *program_of(const union bpf_attr *attr, int *index)
{
	struct bpf_program *prog;

	*index = 0;
	bpf_object__for_each_program(prog, object) {
		if ((__u64)(unsigned long)bpf_program__insns(prog) == attr->insns && attr->insns)
			return prog;
		++*index;
	}
	return NULL;
}

static long interpose(int cmd, union bpf_attr *attr, unsigned int size, int *handled)
{
	struct bpf_program *prog;
	const void *types;
	__u32 length;
	int index;
	(void)size;

	*handled = 1;
	if (cmd == BPF_BTF_LOAD && object && bpf_object__btf(object)) {
		types = btf__raw_data(bpf_object__btf(object), &length);
		if ((__u64)(unsigned long)types == attr->btf && !done[0]) {
			printf("btf");
			hex(types, length);
			putchar('\n');
		}
	}
	if (cmd == BPF_PROG_LOAD && object && (prog = program_of(attr, &index))) {
		if (!done[index])
			dump(prog, attr);
		done[index] = 1;
		return make_up();
	}
	if (cmd == BPF_OBJ_PIN)
		return 0;
	if (cmd == BPF_OBJ_GET) {
		errno = ENOENT;
		return -1;
	}
	if ((cmd == BPF_MAP_UPDATE_ELEM || cmd == BPF_MAP_FREEZE) && attr->map_fd < sizeof(made_up) && made_up[attr->map_fd])
		return 0;
	*handled = 0;
	return 0;
}

long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long args[6], result;
	int handled;
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(list, long);
	va_end(list);
	if (!real)
		real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	if (number == __NR_bpf) {
		result = interpose(args[0], (union bpf_attr *)args[1], args[2], &handled);
		if (handled)
			return result;
	}
	result = real(number, args[0], args[1], args[2], args[3], args[4], args[5]);
	if (number == __NR_bpf && args[0] == BPF_MAP_CREATE && result < 0 && object)
		return make_up();
	return result;
}

static int keep(enum libbpf_print_level level, const char *format, va_list args)
{
	size_t length;

	if (level == LIBBPF_WARN && !strstr(format, "failed to load object") && !strstr(format, "failed to load: %d")) {
		vsnprintf(message, sizeof(message), format, args);
		while ((length = strlen(message)) && message[length - 1] == '\n')
			message[length - 1] = 0;
		for (char *at = message; *at; at++)
			if (*at == '\t' || *at == '\n')
				*at = ' ';
	}
	return 0;
}

static struct bpf_object *open_object(const char *path)
{
	struct bpf_program *prog;

	object = NULL;
	LIBBPF_OPTS(bpf_object_open_opts, options, .btf_custom_path = types_path);
	struct bpf_object *opened = bpf_object__open_file(path, &options);

	if (libbpf_get_error(opened))
		return NULL;
	bpf_object__for_each_program(prog, opened)
		if (bpf_program__type(prog) == BPF_PROG_TYPE_UNSPEC)
			bpf_program__set_type(prog, BPF_PROG_TYPE_SOCKET_FILTER);
	return opened;
}

// One program alone, where libbpf gave up on the whole.
static void alone(const char *path, int wanted)
{
	struct bpf_program *prog;
	int index = 0;
	struct bpf_object *opened = open_object(path);

	bpf_object__for_each_program(prog, opened) {
		if (index++ != wanted)
			bpf_program__set_autoload(prog, false);
	}
	message[0] = 0;
	object = opened;
	bpf_object__load(opened);
	index = 0;
	bpf_object__for_each_program(prog, opened) {
		if (index++ == wanted && !done[wanted])
			printf("fail\t%s\t%s\t%s\n", bpf_program__section_name(prog), bpf_program__name(prog), message);
	}
	object = NULL;
	bpf_object__close(opened);
}

static void one(const char *path)
{
	struct bpf_object *opened = open_object(path);
	struct bpf_program *prog;
	int count = 0;

	printf("object\t%s\n", path);
	if (!opened) {
		printf("fail\t\t\t%s\n", message);
		return;
	}
	bpf_object__for_each_program(prog, opened)
		count++;
	char *wanted = calloc(count + 1, 1);
	done = calloc(count + 1, 1);
	count = 0;
	bpf_object__for_each_program(prog, opened)
		wanted[count++] = bpf_program__autoload(prog);
	object = opened;
	bpf_object__load(opened);
	object = NULL;
	bpf_object__close(opened);
	for (int index = 0; index < count; index++)
		if (wanted[index] && !done[index])
			alone(path, index);
	free(wanted);
	free(done);
}

int main(int argc, char **argv)
{
	libbpf_set_print(keep);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-t") && i + 1 < argc) {
			types_path = argv[++i];
			continue;
		}
		one(argv[i]);
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
		memset(made_up, 0, sizeof(made_up));
	}
	return 0;
}
