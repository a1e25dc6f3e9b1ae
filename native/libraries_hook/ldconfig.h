/* The host's ldconfig, at work on the image's files. */
#ifndef LDCONFIG_H
#define LDCONFIG_H

#include <stddef.h>

/* Makes a cache of the image's libraries and of those in *folders*, which end with NULL and win.
 * This process has mounts of its own afterwards. Gives up if that fails.
 * Returns the cache, and its size in *length. */
char *make_cache(const char *root, char *const folders[], size_t *length);

#endif
