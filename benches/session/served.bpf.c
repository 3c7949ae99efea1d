// A map that a session serves: as many series as there are keys, for `benches/session.rs`.
#include <twinbpf/trace.h>

#define KEYS 1000

MAP_COUNT(served, u64);

TP(syscalls, sys_enter_setpgid)
{
	count(&served, nsecs() % KEYS);
	return 0;
}
DISPLAY_MAP(served, "hidden, metric=served");
LICENSE("GPL");
