// Parses HTTP/1.1 requests (RFC 9112), one after another in len bytes: method, target, version, header fields of which some are
// known, a body of Content-Length bytes. A digest of what was found, or the place of a mistake.
// build: -fno-builtin
#include "outside.h"

struct request {
	const u8 *at, *end;
	u64 hash;
	u32 content_length, keep_alive, fields;
};

static int is_token(u8 c)
{
	switch (c) {
	case '!': case '#': case '$': case '%': case '&': case '\'': case '*': case '+':
	case '-': case '.': case '^': case '_': case '`': case '|': case '~':
		return 1;
	default:
		return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
	}
}

static u8 lower(u8 c)
{
	return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

static int is_name(const u8 *name, u32 len, const char *known)
{
	u32 i;

	for (i = 0; i < len && known[i]; i++)
		if (lower(name[i]) != (u8)known[i])
			return 0;
	return i == len && !known[i];
}

static int expect(struct request *r, const char *text)
{
	for (; *text; text++) {
		if (r->at == r->end || *r->at != (u8)*text)
			return 0;
		r->at++;
	}
	return 1;
}

static u32 token(struct request *r, const u8 **start)
{
	*start = r->at;
	while (r->at < r->end && is_token(*r->at))
		r->at++;
	return r->at - *start;
}

static int request_line(struct request *r)
{
	const u8 *start;
	u32 len = token(r, &start);

	if (!len || !expect(r, " "))
		return 0;
	r->hash = r->hash * 31 + digest(start, len);
	start = r->at;
	while (r->at < r->end && *r->at > ' ' && *r->at < 127)
		r->at++;
	if (r->at == start || !expect(r, " HTTP/1."))
		return 0;
	r->hash = r->hash * 31 + digest(start, r->at - 8 - start);
	if (r->at == r->end || (*r->at != '0' && *r->at != '1'))
		return 0;
	r->keep_alive = *r->at++ == '1';
	return expect(r, "\r\n");
}

static int field(struct request *r)
{
	const u8 *name, *value, *stop;
	u32 len = token(r, &name);

	if (!len || !expect(r, ":"))
		return 0;
	while (r->at < r->end && (*r->at == ' ' || *r->at == '\t'))
		r->at++;
	value = r->at;
	while (r->at < r->end && (*r->at >= ' ' || *r->at == '\t') && *r->at != 127)
		r->at++;
	for (stop = r->at; stop > value && (stop[-1] == ' ' || stop[-1] == '\t'); stop--)
		;
	if (is_name(name, len, "content-length")) {
		r->content_length = 0;
		for (; value < stop; value++) {
			if (*value < '0' || *value > '9' || r->content_length > 100000)
				return 0;
			r->content_length = r->content_length * 10 + *value - '0';
		}
	} else if (is_name(name, len, "connection")) {
		r->keep_alive = !is_name(value, stop - value, "close");
	} else if (is_name(name, len, "host") || is_name(name, len, "cookie")) {
		r->hash = r->hash * 31 + digest(value, stop - value);
	}
	r->fields++;
	return expect(r, "\r\n");
}

WORKLOAD u64 prog(struct block *block)
{
	struct request *r = (struct request *)block->scratch;

	r->at = block->input;
	r->end = r->at + block->len;
	r->hash = r->fields = 0;
	while (r->at < r->end) {
		r->content_length = 0;
		if (!request_line(r))
			return r->at - block->input;
		while (r->at < r->end && *r->at != '\r')
			if (!field(r))
				return r->at - block->input;
		if (!expect(r, "\r\n") || r->content_length > r->end - r->at)
			return r->at - block->input;
		r->at += r->content_length;
		r->hash = r->hash * 31 + r->keep_alive + r->fields;
	}
	return r->hash;
}
