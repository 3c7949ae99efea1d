// The attachments of attr.rs, by libbpf. Loads and links are written down by record.c.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct bpf_insn insns[] = {
	{ .code = 0xb7 },
	{ .code = 0x95 },
};

static void label(const char *text)
{
	FILE *file = fopen(getenv("RECORD"), "a");

	fprintf(file, "%s\n", text);
	fclose(file);
}

static int load(enum bpf_prog_type type, enum bpf_attach_type attach, int btf_id, int flags)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = attach, .attach_btf_id = btf_id,
		    .prog_flags = flags);

	return bpf_prog_load(type, "same", "GPL", insns, 2, &opts);
}

int main(void)
{
	const char *names[] = { "do_exit", "vfs_read" };
	const __u64 cookies[] = { 5, 6 };
	LIBBPF_OPTS(bpf_link_create_opts, plain);
	int prog, root = open("/", O_RDONLY);

	// The first load asks for features, too.
	load(BPF_PROG_TYPE_XDP, 0, 0, 0);

	label("fentry");
	prog = load(BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY, 77, 0);
	LIBBPF_OPTS(bpf_link_create_opts, tracing, .tracing.cookie = 9);
	bpf_link_create(prog, 0, BPF_TRACE_FENTRY, &tracing);

	label("fexit sleepable");
	prog = load(BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT, 78, BPF_F_SLEEPABLE);
	bpf_link_create(prog, 0, BPF_TRACE_FEXIT, &plain);

	label("fmod_ret");
	prog = load(BPF_PROG_TYPE_TRACING, BPF_MODIFY_RETURN, 79, 0);
	bpf_link_create(prog, 0, BPF_MODIFY_RETURN, &plain);

	label("lsm");
	prog = load(BPF_PROG_TYPE_LSM, BPF_LSM_MAC, 80, 0);
	bpf_link_create(prog, 0, BPF_LSM_MAC, &plain);

	label("kprobe.multi");
	prog = load(BPF_PROG_TYPE_KPROBE, BPF_TRACE_KPROBE_MULTI, 0, 0);
	LIBBPF_OPTS(bpf_link_create_opts, kprobes, .kprobe_multi.syms = names, .kprobe_multi.cnt = 2,
		    .kprobe_multi.cookies = cookies, .kprobe_multi.flags = BPF_F_KPROBE_MULTI_RETURN);
	bpf_link_create(prog, 0, BPF_TRACE_KPROBE_MULTI, &kprobes);

	label("xdp");
	prog = load(BPF_PROG_TYPE_XDP, BPF_XDP, 0, 0);
	LIBBPF_OPTS(bpf_link_create_opts, xdp, .flags = 2);
	bpf_link_create(prog, 1, BPF_XDP, &xdp);

	label("cgroup egress");
	prog = load(BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, 0, 0);
	bpf_link_create(prog, root, BPF_CGROUP_INET_EGRESS, &plain);

	label("cgroup connect4");
	prog = load(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT, 0, 0);
	bpf_link_create(prog, root, BPF_CGROUP_INET4_CONNECT, &plain);

	label("sk_lookup");
	prog = load(BPF_PROG_TYPE_SK_LOOKUP, BPF_SK_LOOKUP, 0, 0);
	bpf_link_create(prog, root, BPF_SK_LOOKUP, &plain);

	label("flow_dissector");
	prog = load(BPF_PROG_TYPE_FLOW_DISSECTOR, BPF_FLOW_DISSECTOR, 0, 0);
	bpf_link_create(prog, root, BPF_FLOW_DISSECTOR, &plain);

	label("lsm_cgroup");
	prog = load(BPF_PROG_TYPE_LSM, BPF_LSM_CGROUP, 82, 0);
	bpf_link_create(prog, root, BPF_LSM_CGROUP, &plain);

	label("raw_tp.w");
	prog = load(BPF_PROG_TYPE_RAW_TRACEPOINT_WRITABLE, 0, 0, 0);
	bpf_raw_tracepoint_open("nbd_send_request", prog);

	// The number of the descriptor is the same on both sides.
	label("freplace");
	dup2(root, 100);
	LIBBPF_OPTS(bpf_prog_load_opts, extension, .attach_btf_id = 83, .attach_prog_fd = 100);
	prog = bpf_prog_load(BPF_PROG_TYPE_EXT, "same", "GPL", insns, 2, &extension);
	bpf_link_create(prog, 0, 0, &plain);

	label("iter");
	prog = load(BPF_PROG_TYPE_TRACING, BPF_TRACE_ITER, 81, 0);
	bpf_link_create(prog, 0, BPF_TRACE_ITER, &plain);
	return 0;
}
