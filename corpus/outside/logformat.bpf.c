// Formats len records of 32 bytes as lines of a log, by formats in the manner of printf: %d %u %x %c %s with width, zeros, a sign and
// the left side, and %T for a date and time in UTC, proleptic Gregorian. A digest of the text.
// build: -fno-builtin -mllvm -bpf-stack-size=1024
#include "outside.h"

#define LONGEST 160

static const char formats[4][64] = {
	"%T %-8s pid=%u status=%d bytes=%u",
	"%T [%5u] %s: 0x%08x %+d%%",
	"%T %10s|%-10d|%010d|%c|%x",
	"%T %s moved from %04x:%04x to %u (%d)",
};

static const char names[8][12] = {
	"kernel", "sshd", "cron", "systemd", "postgres", "nginx", "dhclient", "ntpd",
};

struct line {
	u32 len;
	u8 text[LONGEST];
};

struct spec {
	u32 width;
	u8 left, zeros, plus;
};

static void put(struct line *line, u8 c)
{
	if (line->len < LONGEST)
		line->text[line->len++] = c;
}

static void fill(struct line *line, u8 c, u32 count)
{
	while (count--)
		put(line, c);
}

/* A number with its sign, or 0 for none, in as many places as the format says. */
static void put_number(struct line *line, const struct spec *spec, u32 value, u32 base, u8 sign)
{
	u8 digits[12];
	u32 count = 0, size, blanks;

	do {
		u32 digit = value % base;

		digits[count++] = digit < 10 ? '0' + digit : 'a' + digit - 10;
		value /= base;
	} while (value);
	size = count + (sign != 0);
	blanks = spec->width > size ? spec->width - size : 0;
	if (!spec->left && !spec->zeros)
		fill(line, ' ', blanks);
	if (sign)
		put(line, sign);
	if (!spec->left && spec->zeros)
		fill(line, '0', blanks);
	while (count)
		put(line, digits[--count]);
	if (spec->left)
		fill(line, ' ', blanks);
}

static void put_string(struct line *line, const struct spec *spec, const char *text)
{
	u32 len = 0, blanks, i;

	while (text[len])
		len++;
	blanks = spec->width > len ? spec->width - len : 0;
	if (!spec->left)
		fill(line, ' ', blanks);
	for (i = 0; i < len; i++)
		put(line, text[i]);
	if (spec->left)
		fill(line, ' ', blanks);
}

static void put_padded(struct line *line, u32 value, u32 width)
{
	struct spec spec = { .width = width, .zeros = 1 };

	put_number(line, &spec, value, 10, 0);
}

/* Days since 1970 to a date by eras of 400 years, which begin with March. */
static void put_time(struct line *line, u32 seconds)
{
	u32 days = seconds / 86400 + 719468, rest = seconds % 86400;
	u32 era = days / 146097, day = days % 146097;
	u32 year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
	u32 in_year = day - (365 * year + year / 4 - year / 100);
	u32 month = (5 * in_year + 2) / 153, in_month = in_year - (153 * month + 2) / 5 + 1;

	month = month < 10 ? month + 3 : month - 9;
	put_padded(line, year + 400 * era + (month <= 2), 4);
	put(line, '-');
	put_padded(line, month, 2);
	put(line, '-');
	put_padded(line, in_month, 2);
	put(line, ' ');
	put_padded(line, rest / 3600, 2);
	put(line, ':');
	put_padded(line, rest / 60 % 60, 2);
	put(line, ':');
	put_padded(line, rest % 60, 2);
}

static const char *read_spec(struct spec *spec, const char *p)
{
	spec->width = spec->left = spec->zeros = spec->plus = 0;
	for (;; p++) {
		if (*p == '-')
			spec->left = 1;
		else if (*p == '+')
			spec->plus = 1;
		else if (*p == '0')
			spec->zeros = 1;
		else
			break;
	}
	for (; *p >= '0' && *p <= '9'; p++)
		spec->width = spec->width * 10 + *p - '0';
	return p;
}

static void format(struct line *line, const char *p, const u32 *values)
{
	struct spec spec;
	u32 value;

	line->len = 0;
	for (; *p; p++) {
		if (*p != '%') {
			put(line, *p);
			continue;
		}
		p = read_spec(&spec, p + 1);
		if (*p == '%') {
			put(line, '%');
			continue;
		}
		value = *values++;
		switch (*p) {
		case 'd':
			if (value >> 31)
				put_number(line, &spec, -value, 10, '-');
			else
				put_number(line, &spec, value, 10, spec.plus ? '+' : 0);
			break;
		case 'u':
			put_number(line, &spec, value, 10, 0);
			break;
		case 'x':
			put_number(line, &spec, value, 16, 0);
			break;
		case 'c':
			put(line, 'a' + value % 26);
			break;
		case 's':
			put_string(line, &spec, names[value % 8]);
			break;
		case 'T':
			put_time(line, value);
			break;
		}
	}
	put(line, '\n');
}

WORKLOAD u64 prog(struct block *block)
{
	struct line *line = (struct line *)block->scratch;
	u64 result = 0;

	for (u32 i = 0; i < block->len; i++) {
		const u32 *record = block->input32 + 8 * i;

		format(line, formats[record[7] % 4], record);
		result = result * 31 + digest(line->text, line->len);
	}
	return result;
}
