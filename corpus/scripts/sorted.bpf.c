// Counts words into a hash map and prints the entries in every order map_for_each knows.
#include <twinbpf/script.h>

struct word {
	char text[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct word);
	__type(value, __u64);
	__uint(max_entries, 64);
} counts SEC(".maps");

static const char text[] = "the cat and the dog and the bird saw a cat";

static void count(const struct word *word)
{
	__u64 one = 1, *old = bpf_map_lookup_elem(&counts, word);

	if (old)
		*old += 1;
	else
		bpf_map_update_elem(&counts, word, &one, BPF_NOEXIST);
}

static int show(const void *key, void *value, void *ctx)
{
	const struct word *word = key;
	__u32 *left = ctx;

	printf("  %-6s%llu\n", word->text, *(__u64 *)value);
	return --*left == 0;
}

static void list(const char *title, __u32 limit, __u64 order)
{
	long calls;

	printf("%s:\n", title);
	calls = map_for_each(&counts, show, &limit, order);
	printf("  (%ld)\n", calls);
}

int BEGIN(void)
{
	struct word word = {};
	__u32 i, length = 0;

	for (i = 0; i < sizeof(text); i++) {
		if (text[i] != ' ' && text[i] != 0) {
			if (length < sizeof(word.text) - 1)
				word.text[length++] = text[i];
			continue;
		}
		count(&word);
		memset(&word, 0, sizeof(word));
		length = 0;
	}
	return 0;
}

void END(void)
{
	list("by word", 100, MAP_BY_KEY);
	list("by word, descending", 100, MAP_BY_KEY | MAP_DESCENDING);
	list("top one", 1, MAP_BY_VALUE | MAP_DESCENDING);
}

LICENSE("GPL");
