// Every host function the header declares is there: asks for each, and would call each.
#include <twinbpf/script.h>

#undef printf
#undef print
#undef snprintf

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 8);
} map SEC(".maps");

char a[64], b[64];
volatile __u32 never, n;
volatile long sink;
static __u32 missing;

static int visit(const void *key, void *value, void *ctx)
{
	return 0;
}

#define ASK(function, call)                                                                                        \
	do {                                                                                                       \
		if (!function) {                                                                                   \
			twinbpf_printf("missing: %s\n", #function);                                                \
			missing++;                                                                                 \
		}                                                                                                  \
		if (never)                                                                                         \
			call;                                                                                      \
	} while (0)

static __noinline void strings(void)
{
	ASK(strlen, sink = strlen(a));
	ASK(strnlen, sink = strnlen(a, n));
	ASK(strcmp, sink = strcmp(a, b));
	ASK(strncmp, sink = strncmp(a, b, n));
	ASK(strcasecmp, sink = strcasecmp(a, b));
	ASK(strncasecmp, sink = strncasecmp(a, b, n));
	ASK(strcpy, strcpy(a, b));
	ASK(strncpy, strncpy(a, b, n));
	ASK(strcat, strcat(a, b));
	ASK(strncat, strncat(a, b, n));
	ASK(strchr, sink = strchr(a, n) - a);
	ASK(strrchr, sink = strrchr(a, n) - a);
	ASK(strstr, sink = strstr(a, b) - a);
	ASK(strspn, sink = strspn(a, b));
	ASK(strcspn, sink = strcspn(a, b));
	ASK(atoi, sink = atoi(a));
	ASK(atol, sink = atol(a));
	ASK(strtol, sink = strtol(a, NULL, n));
	ASK(strtoul, sink = strtoul(a, NULL, n));
	ASK(memcmp, sink = memcmp(a, b, n));
	ASK(memchr, sink = (long)memchr(a, n, n));
	ASK(twinbpf_memcpy, twinbpf_memcpy(a, b, n));
	ASK(twinbpf_memmove, twinbpf_memmove(a, b, n));
	ASK(twinbpf_memset, twinbpf_memset(a, n, n));
}

static __noinline void maps(void)
{
	ASK(map_lookup_elem, map_lookup_elem(&map, a, b));
	ASK(map_update_elem, map_update_elem(&map, a, b, 0));
	ASK(map_delete_elem, map_delete_elem(&map, a));
	ASK(map_get_next_key, map_get_next_key(&map, a, b));
	ASK(map_for_each, map_for_each(&map, visit, NULL, MAP_BY_KEY));
}

int BEGIN(void)
{
	const __u64 values[] = { n };

	ASK(printf, printf("%d%s", n, a));
	ASK(puts, puts(a));
	ASK(putchar, putchar(n));
	ASK(print, print("%d", n));
	ASK(snprintf, snprintf(a, n, "%s%d", b, n));
	ASK(twinbpf_printf, twinbpf_printf("%d", n));
	ASK(twinbpf_printfv, twinbpf_printfv("%d", values, 1));
	ASK(twinbpf_snprintf, twinbpf_snprintf(a, n, "%d", n));
	ASK(twinbpf_snprintfv, twinbpf_snprintfv(a, n, "%d", values, 1));
	ASK(twinbpf_exit, twinbpf_exit(n));
	strings();
	maps();
	twinbpf_printf("%d missing\n", missing);
	return 0;
}

LICENSE("GPL");
