// The data path of a layer 4 load balancer on XDP, over len packets of 128 bytes: Ethernet, two VLAN tags, IPv4 or
// IPv6 with extension headers, ICMP errors, TCP, UDP; look-up of the virtual address, then of the connection, else a
// choice from a ring of real servers by hash; an outer IPv4 or IPv6 header with checksum; counters.
//
// Behind the packets (48 KiB) the input holds the tables: 128 services, a ring of 512 server numbers, 64 servers.
// build: -fno-builtin
#include "block.h"

#define PACKET 128
#define PACKETS 384
#define SERVICES 128
#define RING 512
#define SERVERS 64
#define CONNECTIONS 512

enum { PASS, DROP, SEND };

struct service {
	u32 address[4];
	u16 port;
	u8 protocol, used;
	u32 flags, ring_start;
	u32 unused;
};

struct server {
	u32 address[4];
	u8 mac[6];
	u16 is_ipv6;
};

struct tables {
	struct service services[SERVICES];
	u16 ring[RING];
	struct server servers[SERVERS];
};

struct connection {
	u32 source[4];
	u32 ports, service, server, packets;
};

struct state {
	struct connection connections[CONNECTIONS];
	u64 packets[SERVICES], bytes[SERVICES];
	u8 out[192];
};

/* What is known of a packet. */
struct flow {
	u32 source[4], target[4];
	u16 source_port, target_port;
	u8 protocol, is_ipv6, fresh, reset;
};

/* A service whose connections are not remembered. */
#define NO_MEMORY 1
/* Hash by address alone. */
#define NO_PORTS 2

static inline __attribute__((always_inline)) u32 be16(const u8 *p)
{
	return __builtin_bswap16(*(const u16 *)p);
}

/* The three-word mixer of Bob Jenkins's lookup3, which the kernel calls jhash. */
#define FINAL(a, b, c)                          \
	do {                                    \
		c ^= b, c -= rotl32(b, 14);     \
		a ^= c, a -= rotl32(c, 11);     \
		b ^= a, b -= rotl32(a, 25);     \
		c ^= b, c -= rotl32(b, 16);     \
		a ^= c, a -= rotl32(c, 4);      \
		b ^= a, b -= rotl32(a, 14);     \
		c ^= b, c -= rotl32(b, 24);     \
	} while (0)

static inline __attribute__((always_inline)) u32 mix3(u32 a, u32 b, u32 c)
{
	a += 0xdeadbef7, b += 0xdeadbef7, c += 0xdeadbef7;
	FINAL(a, b, c);
	return c;
}

static inline __attribute__((always_inline)) u32 hash_of(const u32 *address, u32 ports)
{
	return mix3(address[0] ^ address[3], address[1] + ports, address[2] ^ mix3(address[3], ports, 7));
}

/* Fills the flow from the transport header; PASS where there is none that counts, SEND to go on. */
static inline __attribute__((always_inline)) u32 transport(struct flow *flow, const u8 *at, const u8 *end)
{
	if (flow->protocol == 6) {
		if (at + 20 > end)
			return DROP;
		flow->fresh = (at[13] & 0x12) == 0x02;
		flow->reset = (at[13] & 0x05) != 0;
	} else if (flow->protocol == 17) {
		if (at + 8 > end)
			return DROP;
	} else {
		return PASS;
	}
	flow->source_port = be16(at);
	flow->target_port = be16(at + 2);
	return SEND;
}

static inline __attribute__((always_inline)) u32 parse_ipv4(struct flow *flow, const u8 *ip, const u8 *end)
{
	u32 header, i;

	if (ip + 20 > end || ip[0] >> 4 != 4)
		return DROP;
	header = (ip[0] & 15) * 4;
	if (header < 20 || ip + header > end)
		return DROP;
	/* More fragments, or not the first one. */
	if (be16(ip + 6) & 0x3fff)
		return DROP;
	flow->protocol = ip[9];
	for (i = 0; i < 3; i++)
		flow->source[i] = flow->target[i] = 0;
	flow->source[3] = *(const u32 *)(ip + 12);
	flow->target[3] = *(const u32 *)(ip + 16);
	return transport(flow, ip + header, end);
}

static inline __attribute__((always_inline)) u32 parse_ipv6(struct flow *flow, const u8 *ip, const u8 *end)
{
	const u8 *at = ip + 40;
	u32 i;

	if (at > end)
		return DROP;
	for (i = 0; i < 4; i++) {
		flow->source[i] = *(const u32 *)(ip + 8 + 4 * i);
		flow->target[i] = *(const u32 *)(ip + 24 + 4 * i);
	}
	flow->protocol = ip[6];
#pragma clang loop unroll(disable)
	for (i = 0; i < 3; i++) {
		/* Hop by hop, routing, destination options; a fragment ends it. */
		if (flow->protocol == 44)
			return DROP;
		if (flow->protocol != 0 && flow->protocol != 43 && flow->protocol != 60)
			break;
		if (at + 8 > end)
			return DROP;
		flow->protocol = at[0];
		at += 8 + at[1] * 8;
	}
	if (at >= end)
		return DROP;
	return transport(flow, at, end);
}

/* Index of the service of a flow, or SERVICES. A service with port 0 takes every port. */
static inline __attribute__((always_inline)) u32 service_of(const struct tables *tables, const struct flow *flow)
{
	u32 at = mix3(flow->target[0] ^ flow->target[2], flow->target[1] ^ flow->target[3], flow->protocol), i;

#pragma clang loop unroll(disable)
	for (i = 0; i < 8; i++, at++) {
		const struct service *service = &tables->services[at & (SERVICES - 1)];

		if (!service->used)
			break;
		if (service->address[3] == flow->target[3] && service->protocol == flow->protocol &&
		    (!service->port || service->port == flow->target_port) &&
		    service->address[0] == flow->target[0] && service->address[1] == flow->target[1] &&
		    service->address[2] == flow->target[2])
			return at & (SERVICES - 1);
	}
	return SERVICES;
}

static inline __attribute__((always_inline)) u32 server_of(struct state *state, const struct tables *tables,
							   const struct flow *flow, u32 number)
{
	const struct service *service = &tables->services[number];
	u32 ports = (u32)flow->source_port << 16 | flow->target_port, hash = hash_of(flow->source, ports), server;
	struct connection *known = &state->connections[hash & (CONNECTIONS - 1)];

	if (!(service->flags & NO_MEMORY) && !flow->fresh && known->ports == ports && known->service == number &&
	    known->source[3] == flow->source[3] && known->source[0] == flow->source[0] &&
	    known->source[1] == flow->source[1] && known->source[2] == flow->source[2]) {
		known->packets++;
		server = known->server;
		if (flow->reset)
			known->ports = 0;
		return server;
	}
	if (service->flags & NO_PORTS)
		hash = hash_of(flow->source, 0);
	server = tables->ring[(service->ring_start + (hash >> 9)) & (RING - 1)] & (SERVERS - 1);
	if (!(service->flags & NO_MEMORY)) {
		u32 i;

		for (i = 0; i < 4; i++)
			known->source[i] = flow->source[i];
		known->ports = ports;
		known->service = number;
		known->server = server;
		known->packets = 1;
	}
	return server;
}

/* Writes the Ethernet and the outer IP header before the packet's own; returns what they sum to. */
static inline __attribute__((always_inline)) u64 encapsulate(u8 *out, const u8 *packet, const struct server *server,
							     const struct flow *flow, u32 length, u32 hash)
{
	u32 i, sum = 0, outer = server->is_ipv6 ? 40 : 20;
	u8 *ip = out + 14;
	u64 total = 0;

	for (i = 0; i < 6; i++) {
		out[i] = server->mac[i];
		out[6 + i] = packet[i];
	}
	*(u16 *)(out + 12) = server->is_ipv6 ? 0xdd86 : 0x0008;
	if (server->is_ipv6) {
		*(u32 *)ip = 0x60;
		*(u16 *)(ip + 4) = __builtin_bswap16(length);
		ip[6] = flow->is_ipv6 ? 41 : 4;
		ip[7] = 64;
		*(u32 *)(ip + 8) = 0x64;
		*(u32 *)(ip + 12) = *(u32 *)(ip + 16) = 0;
		*(u32 *)(ip + 20) = hash;
		for (i = 0; i < 4; i++)
			*(u32 *)(ip + 24 + 4 * i) = server->address[i];
	} else {
		*(u16 *)ip = 0x45;
		*(u16 *)(ip + 2) = __builtin_bswap16(length + 20);
		*(u32 *)(ip + 4) = 0;
		*(u16 *)(ip + 8) = flow->is_ipv6 ? 41 << 8 | 64 : 4 << 8 | 64;
		*(u16 *)(ip + 10) = 0;
		*(u32 *)(ip + 12) = 0x10ac | (hash & 0xffff) << 16;
		*(u32 *)(ip + 16) = server->address[3];
#pragma clang loop unroll(disable)
		for (i = 0; i < 20; i += 2)
			sum += *(const u16 *)(ip + i);
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		*(u16 *)(ip + 10) = ~sum;
	}
#pragma clang loop unroll(disable)
	for (i = 0; i < 14 + outer; i += 2)
		total = total * 31 + *(const u16 *)(out + i);
	return total;
}

KERNEL u64 prog(struct block *block)
{
	const struct tables *tables = (const struct tables *)(block->input + PACKETS * PACKET);
	struct state *state = (struct state *)block->scratch;
	u64 hash = 0;
	u32 n = block->len, i, k;

	if (n > PACKETS)
		return 0;
	for (i = 0; i < CONNECTIONS; i++)
		state->connections[i].ports = 0;
	for (i = 0; i < SERVICES; i++)
		state->packets[i] = state->bytes[i] = 0;
	for (i = 0; i < n; i++) {
		const u8 *packet = block->input + i * PACKET, *at = packet + 14, *end = packet + PACKET;
		u32 protocol = be16(packet + 12), verdict = PASS, service, server;
		struct flow flow;

#pragma clang loop unroll(disable)
		for (k = 0; k < 2 && (protocol == 0x8100 || protocol == 0x88a8); k++) {
			protocol = be16(at + 2);
			at += 4;
		}
		flow.fresh = flow.reset = 0;
		flow.is_ipv6 = protocol == 0x86dd;
		if (protocol == 0x0800)
			verdict = parse_ipv4(&flow, at, end);
		else if (protocol == 0x86dd)
			verdict = parse_ipv6(&flow, at, end);
		if (verdict != SEND) {
			hash = hash * 31 + verdict;
			continue;
		}
		service = service_of(tables, &flow);
		if (service >= SERVICES) {
			hash = hash * 31 + PASS;
			continue;
		}
		server = server_of(state, tables, &flow, service);
		state->packets[service]++;
		state->bytes[service] += end - at;
		hash = hash * 31 + encapsulate(state->out, packet, &tables->servers[server], &flow, end - at,
					       flow.source[3] ^ flow.source_port);
	}
	for (i = 0; i < SERVICES; i++)
		hash = hash * 31 + (state->packets[i] << 32 ^ state->bytes[i]);
	return hash;
}
