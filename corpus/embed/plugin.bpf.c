// The plugin of examples/plugin.rs: says which events it wants and what to do with them.
#include <twinbpf/script.h>

enum kind { ORDER = 1, REFUND = 2 };

struct event {
	__u32 kind;
	__u32 customer;
	__s64 cents;
};

typedef int (*callback)(struct event *event);

HOST void subscribe(__u32 kind, callback on_event);
HOST int dispatch(void);

__s64 balance;

/* Large orders are cheaper. */
static int on_order(struct event *event)
{
	if (event->cents >= 10000)
		event->cents -= event->cents / 10;
	balance += event->cents;
	return 0;
}

/* Only customers below 100 get their money back. */
static int on_refund(struct event *event)
{
	if (event->customer >= 100)
		return -1;
	balance -= event->cents;
	return 0;
}

int plugin(void)
{
	subscribe(ORDER, on_order);
	subscribe(REFUND, on_refund);
	return dispatch();
}

LICENSE("GPL");
