/* Which containers have a chip: the first mount namespace that opens it, unless it is shared.
 *
 * A process of a container holds a read lock on the state file, behind its end, at a place that is
 * made of the chip and the namespace. The kernel drops it with the process. (The real module keeps
 * a chip for the namespace until that ends; here no process of one can see those of another.)
 */
#include "occupancy.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#define SPAN ((off_t)1 << 32) /* of one chip: an inode of a namespace has 32 bits */

static off_t span_of(int index)
{
    return (off_t)(index + 1) * SPAN;
}

static off_t own_place(int index)
{
    struct stat namespace;
    bool known = stat("/proc/self/ns/mnt", &namespace) == 0;
    return span_of(index) + (known ? (off_t)(namespace.st_ino % SPAN) : 0);
}

/* Whether another process has a lock between the two places. */
static bool is_locked(off_t start, off_t end)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = end - start};
    return start < end && fcntl(board_file(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool has_another(int index)
{
    off_t own = own_place(index);
    return is_locked(span_of(index), own) || is_locked(own + 1, span_of(index) + SPAN);
}

bool occupancy_any(int index)
{
    return is_locked(span_of(index), span_of(index) + SPAN);
}

int occupancy_take(const struct board *board, const struct snapshot *seen)
{
    flock(board_file(), LOCK_EX); /* one container at a time; board_unlock ends this too */
    for (int i = 0; i < seen->count; i++) {
        int index = seen->slots[i].index;
        bool is_whole = seen->slots[i].vnpu == 0;
        if (is_whole && board->devices[index].share_enable == 0 && has_another(index)) {
            return DCMI_RESOURCE_OCCUPIED;
        }
    }
    for (int i = 0; i < seen->count; i++) {
        struct flock own = {.l_type = F_RDLCK,
                            .l_whence = SEEK_SET,
                            .l_start = own_place(seen->slots[i].index),
                            .l_len = 1};
        if (seen->slots[i].vnpu == 0) {
            (void)fcntl(board_file(), F_OFD_SETLK, &own);
        }
    }
    return DCMI_OK;
}
