/* Packet headers and constants shared by the packet programs. */
#ifndef CORPUS_HEADERS_H
#define CORPUS_HEADERS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

struct vlan_header {
	__be16 tag;
	__be16 protocol;
};

/* The 32-bit packet pointers of a context as pointers. */
#define DATA(ctx) ((void *)(long)(ctx)->data)
#define DATA_END(ctx) ((void *)(long)(ctx)->data_end)

#endif
