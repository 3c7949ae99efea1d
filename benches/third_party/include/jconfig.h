/* What mozjpeg's build would find out. */
#define JPEG_LIB_VERSION 62
#define BITS_IN_JSAMPLE 8
#define HAVE_UNSIGNED_CHAR 1
#define HAVE_UNSIGNED_SHORT 1
#define HAVE_STDDEF_H 1
#define HAVE_STDLIB_H 1
