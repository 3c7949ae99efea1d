#include <twinbpf/script.h>
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 8);
        __ulong(map_extra, 1);
} map SEC(".maps");
volatile float fraction = 0.5f;
char text[64];
volatile u32 length;

static int show(const void *key, void *, void *)
{
        return printf("%d\n", *(const int *)key);
}

extern "C" int BEGIN(void)
{
        __u64 value = 1;
        u32 key = 1;
        bool found = bpf_map_lookup_elem(&map, &key) != NULL;

        printf("%d %s %g %Lg\n", found, text, fraction, 0.5L);
        printf("plain\n");
        printf("%d %d %d %d %llu\n", 1, 2, 3, 4, value);
        print("%d\n", snprintf(text, sizeof(text), "%d %d %d", 1, 2, 3));
        memset(text, 0, sizeof(text));
        memcpy(text, text + 32, length);
        map_update_elem(&map, &key, &value, BPF_ANY);
        map_for_each(&map, show, NULL, MAP_BY_KEY | MAP_DESCENDING);
        if (found)
                exit(true);
        return bpf_ktime_get_ns() > strlen(text);
}
LICENSE("GPL");
