/* Third-party code includes it; see third_party.h. */
#define errno third_party_errno
