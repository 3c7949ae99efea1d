/* What mozjpeg's build would find out. */
#define INLINE inline
#define SIZEOF_SIZE_T 8
#define FALLTHROUGH __attribute__((fallthrough));
#define HIDDEN
