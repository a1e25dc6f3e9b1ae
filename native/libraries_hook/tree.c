#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#define A_FOLDER (O_PATH | O_DIRECTORY | O_CLOEXEC)

int tree_separate(void)
{
    if (unshare(CLONE_NEWNS) != 0)
        return -1;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

int tree_alone(const char *folder)
{
    if (mount(folder, folder, NULL, MS_BIND, NULL) != 0)
        return -1;
    return open(folder, A_FOLDER);
}

int tree_enter(int tree)
{
    return fchdir(tree) == 0 && chroot(".") == 0 ? 0 : -1;
}

int tree_become(int tree)
{
    if (fchdir(tree) != 0)
        return -1;
    if (syscall(SYS_pivot_root, ".", ".") == 0)
        return umount2(".", MNT_DETACH) == 0 ? chdir("/") : -1;
    /* A root in the initial RAM disk cannot be pivoted away. Moved over it, the tree hides it, and
     * a process that may not change its root does not get behind that. */
    if (errno != EINVAL || mount(".", "/", NULL, MS_MOVE, NULL) != 0)
        return -1;
    return chroot(".") == 0 ? chdir("/") : -1;
}

int tree_limit(const char *path, unsigned long flags)
{
    return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | flags, NULL);
}

int tree_carry(int from, const char *source, int into, const char *target, unsigned long flags)
{
    if (tree_enter(from) != 0)
        return -1;
    int found = open(source, A_FOLDER);
    int result = -1;
    if (tree_enter(into) == 0 && found >= 0 && fchdir(found) == 0 &&
        mount(".", target, NULL, MS_BIND, NULL) == 0)
        result = tree_limit(target, flags);
    if (found >= 0)
        close(found);
    return result;
}
