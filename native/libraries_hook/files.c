#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

char *read_whole(int file, size_t limit, size_t *length)
{
    size_t room = 1 << 16;
    char *text = malloc(room + 1);

    *length = 0;
    while (text != NULL) {
        ssize_t got = read(file, text + *length, room - *length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        if (got == 0) {
            text[*length] = 0;
            return text;
        }
        *length += (size_t)got;
        if (*length > limit) {
            errno = EFBIG;
            break;
        }
        if (*length == room) {
            char *more = realloc(text, 2 * room + 1);
            if (more == NULL)
                break;
            text = more;
            room *= 2;
        }
    }
    free(text);
    return NULL;
}

int write_whole(int file, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t put = write(file, text, length);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return -1;
        text += put;
        length -= (size_t)put;
    }
    return 0;
}

int replace(int folder, const char *name, const char *text, size_t length)
{
    static const char temporary[] = ".ascend-npu-dra.new";

    (void)unlinkat(folder, temporary, 0); /* the name is ours */
    int file =
        openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0)
        return -1;
    int result = write_whole(file, text, length);
    if (result == 0)
        result = fchmod(file, 0644);
    close(file);
    if (result == 0)
        result = renameat(folder, temporary, folder, name);
    if (result != 0) {
        int error = errno;
        (void)unlinkat(folder, temporary, 0);
        errno = error;
    }
    return result;
}

int open_regular(int folder, const char *name, off_t limit)
{
    struct stat found;
    int file =
        openat(folder, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);

    if (file < 0)
        return -1;
    if (fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_size <= limit)
        return file;
    close(file);
    errno = EINVAL;
    return -1;
}

void close_but_standard(void)
{
    const int first = STDERR_FILENO + 1;

    if (close_range((unsigned)first, ~0U, 0) != 0)
        for (int descriptor = first; descriptor < 256; descriptor++)
            close(descriptor); /* before Linux 5.9 */
}
