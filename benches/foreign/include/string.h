/* Foreign code includes it; see foreign.h. */
