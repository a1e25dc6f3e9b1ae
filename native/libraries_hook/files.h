/* Whole files. Functions return NULL or -1 with errno if something fails. */
#ifndef FILES_H
#define FILES_H

#include <stddef.h>
#include <sys/types.h>

/* A whole file in memory, with a zero behind it; EFBIG if it has more bytes than the limit. */
char *read_whole(int file, size_t limit, size_t *length);

int write_whole(int file, const char *text, size_t length);

/* Replaces a file by one that anybody reads; a link of that name is replaced, not followed. */
int replace(int folder, const char *name, const char *text, size_t length);

/* Opens a regular file without waiting for anybody, and no link; EINVAL for anything else. */
int open_regular(int folder, const char *name, off_t limit);

/* Closes all descriptors but those for input, output and errors. */
void close_but_standard(void);

#endif
