/* Third-party code includes it; see third_party.h. */
